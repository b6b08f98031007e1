// How operations of the hierarchical backend end, call back and are broken off.

#include <tests/support/backend_checks.h>
#include <tests/support/failures.h>
#include <tests/support/hierarchical.h>

#include <ATen/core/ivalue.h>

namespace ddp::test::hierarchical_work_test {

using Future = c10::ivalue::Future;

const Hosts kHosts{"a", "a", "b", "b"};

/// What the ranks' ones add up to.
void check_sum(const BackendPtr& backend) {
  Tensors tensors{torch::ones({5})};
  backend->allreduce(tensors, {})->wait();
  REQUIRE(tensors[0].eq(backend->getSize()).all().item<bool>());
}

/// Rank 0 goes on while the others wait for it.
void let_rank_0_be_first(const ProcessGroup& group) {
  if (group.rank() > 0) {
    group.store()->wait({"rank 0 waits"});
  }
}

void let_others_go(const ProcessGroup& group) {
  if (group.rank() == 0) {
    group.store()->set("rank 0 waits", std::string("1"));
  }
}

/// Ends amid an all-reduce to which the last rank does not come, with `end`,
/// after which the backend's owner is gone.
template <typename End>
void check_prompt_end(End end, const std::string& reason) {
  ranks(4, [&](ProcessGroup group) {
    auto backend = hierarchical_backend(group, kHosts);
    check_sum(backend);
    if (group.rank() != 3) {
      Tensors tensors{torch::ones({5})};
      const auto work = backend->allreduce(tensors, {});
      const auto next = backend->allreduce(tensors, {});
      REQUIRE_THROWS(work->wait(std::chrono::milliseconds(100)));
      const auto start = Clock::now();
      end(backend);
      REQUIRE_THAT(error_of([&] { work->wait(); }), Has("all_reduce"));
      REQUIRE_THAT(error_of([&] { next->wait(); }), Has(reason));
      REQUIRE(seconds_since(start) < 10); // half of the timeout
    }
    meet_at_store(group, {"0", "1", "2", "3"});
  });
}

RANKS_TEST("a callback may communicate, and wait for it") {
  check_left_alone(hierarchical_backend(group, {"a", "a", "b"}));
}

RANKS_TEST("a callback may drop the last reference to the group") {
  auto backend = hierarchical_backend(group, {"a", "a", "b"});
  Tensors tensors{torch::ones({5})};
  let_rank_0_be_first(group);
  const auto work = backend->allreduce(tensors, {});
  const auto weak = c10::weak_intrusive_ptr<c10d::Backend>(backend);
  const auto future = work->getFuture();
  const auto last = std::make_shared<BackendPtr>(std::move(backend));
  const auto dropped = future->then(
      [last](Future&) {
        last->reset();
        return c10::IValue(7);
      },
      c10::IntType::get());
  let_others_go(group);
  dropped->waitAndThrow();
  REQUIRE(weak.expired());
  work->wait();
  group.barrier();
}

RANKS_TEST("what a callback throws is the error of the group's next use") {
  const auto backend = hierarchical_backend(group, {"a", "a", "b"});
  Tensors tensors{torch::ones({5})};
  let_rank_0_be_first(group);
  const auto work = backend->allreduce(tensors, {});
  if (group.rank() == 0) {
    work->getFuture()->addCallback([](Future&) { throw 42; });
  }
  let_others_go(group);
  work->wait();
  if (group.rank() == 0) {
    REQUIRE_THAT(
        error_of([&] { check_sum(backend); }),
        Has("a callback on the future of all_reduce threw"));
  }
  meet_at_store(group, {"0", "1", "2"});
}

TEST_CASE("a group that is destroyed amid an operation breaks it off") {
  check_prompt_end(
      [](BackendPtr& backend) { backend.reset(); }, "was destroyed");
}

TEST_CASE("a group that is aborted amid an operation breaks it off") {
  check_prompt_end(
      [](BackendPtr& backend) { backend->abort(); }, "was aborted");
}

} // namespace ddp::test::hierarchical_work_test
