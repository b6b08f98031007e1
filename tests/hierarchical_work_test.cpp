// The ends, callbacks and aborts of operations of the hierarchical backend, its
// rejected calls, and its errors if a part fails.

#include <tests/support/backend_checks.h>
#include <tests/support/failures.h>
#include <tests/support/hierarchical.h>

#include <ATen/core/ivalue.h>

namespace ddp::test::hierarchical_work_test {

using Future = c10::ivalue::Future;

const Hosts kHosts{"a", "a", "b", "b"};

/// Checks the sum of the ranks' ones.
void check_sum(const BackendPtr& backend) {
  Tensors tensors{torch::ones({5})};
  backend->allreduce(tensors, {})->wait();
  REQUIRE(tensors[0].eq(backend->getSize()).all().item<bool>());
}

/// Rank 0 continues while the others wait for it.
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

/// Ends the backend by `end` during an all-reduce that the last rank does not
/// enter.
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

using backends::hierarchical::SubBackends;

class DoneWork : public c10d::Work {
 public:
  DoneWork() {
    finish();
  }
};

/// A part that fails with the error `trouble`, unless that is empty.
class FakePart : public c10d::Backend {
 public:
  FakePart() : Backend(0, 2) {}

  const std::string getBackendName() const override {
    return "fake";
  }
  WorkPtr allreduce(Tensors&, const c10d::AllreduceOptions&) override {
    TORCH_CHECK(trouble.empty(), trouble);
    return c10::make_intrusive<DoneWork>();
  }
  WorkPtr broadcast(Tensors&, const c10d::BroadcastOptions&) override {
    return c10::make_intrusive<DoneWork>();
  }
  WorkPtr send(Tensors&, int, int) override {
    return c10::make_intrusive<DoneWork>();
  }
  WorkPtr alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override {
    return c10::make_intrusive<DoneWork>();
  }
  WorkPtr barrier(const c10d::BarrierOptions&) override {
    ++barriers;
    return c10::make_intrusive<DoneWork>();
  }
  bool supportsTensorAlloc(c10::DeviceIndex) override {
    return true;
  }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return torch::full({size}, 42, options);
  }
  void abort() override {
    ++aborted;
  }

  std::string trouble;
  std::atomic<int> aborted{0};
  int barriers = 0;
};

struct Fakes {
  c10::intrusive_ptr<FakePart> intra_node = c10::make_intrusive<FakePart>();
  c10::intrusive_ptr<FakePart> inter_node = c10::make_intrusive<FakePart>();
  c10::intrusive_ptr<FakePart> flat = c10::make_intrusive<FakePart>();
  BackendPtr backend = backends::hierarchical::create(
      {"a", "a", "b", "b"},
      0,
      SubBackends{intra_node, inter_node, flat});
};

TEST_CASE("the first failure of a part is that of all later operations") {
  Fakes fakes;
  Tensors tensors{torch::ones({4})};
  fakes.backend->allreduce(tensors, {})->wait();
  fakes.inter_node->trouble = "the cable is gone";
  const auto work = fakes.backend->allreduce(tensors, {});
  const auto text = error_of([&] { work->wait(); });
  REQUIRE_THAT(
      text,
      Has("all_reduce (operation 2 of its group) over hierarchical on rank 0 "
          "of 4 failed between hosts (fake): the cable is gone"));
  REQUIRE(work->isCompleted());
  REQUIRE(work->getFuture()->hasError());
  for (const auto& part : {fakes.intra_node, fakes.inter_node, fakes.flat}) {
    REQUIRE(part->aborted == 1);
  }
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { fakes.backend->barrier({}); },
           [&] { fakes.backend->send(tensors, 1, 0); }}) {
    REQUIRE_THAT(error_of(call), Has("already failed", "the cable is gone"));
  }
}

TEST_CASE("an abort is one of all parts") {
  Fakes fakes;
  Tensors tensors{torch::ones({4})};
  fakes.backend->abort();
  REQUIRE(fakes.intra_node->aborted + fakes.inter_node->aborted == 2);
  REQUIRE_THAT(
      error_of([&] { fakes.backend->allreduce(tensors, {}); }),
      Has("was aborted"));
}

TEST_CASE("a barrier is one of what went directly before it, too") {
  Fakes fakes;
  Tensors tensors{torch::ones({4})};
  fakes.backend->barrier({})->wait();
  fakes.backend->send(tensors, 1, 0)->wait(); // the others do not call it
  fakes.backend->barrier({})->wait();
  REQUIRE(fakes.flat->barriers == 0);
  fakes.backend->alltoall(tensors, tensors, {})->wait();
  fakes.backend->barrier({})->wait();
  fakes.backend->barrier({})->wait();
  REQUIRE(fakes.flat->barriers == 1);
}

TEST_CASE("memory comes from the part within the host") {
  Fakes fakes;
  REQUIRE(fakes.backend->supportsTensorAlloc(0));
  REQUIRE(torch::equal(
      fakes.backend->allocateTensor(3, torch::kLong),
      torch::tensor({42, 42, 42})));
  const auto alone = backends::hierarchical::create(
      {"a", "b"}, 0, SubBackends{nullptr, fakes.inter_node, fakes.flat});
  REQUIRE(!alone->supportsTensorAlloc(0));
}

TEST_CASE("arguments that do not fit are refused, and the group goes on") {
  Fakes fakes;
  const auto& backend = fakes.backend;
  Tensors tensors{torch::ones({4})};
  Tensors two(2, tensors[0]);
  Tensors strided{torch::ones({4, 4}).t().slice(0, 0, 2)};
  Tensors integers{torch::ones({4}, torch::kLong)};
  Tensors small{torch::ones({4}).to(torch::kFloat8_e5m2)};
  c10d::AllreduceOptions mean;
  mean.reduceOp = c10d::ReduceOp::AVG;
  c10d::BroadcastOptions outside;
  outside.rootRank = 4;
  auto whole = torch::ones({15});
  std::vector<Tensors> lists{two};
  const std::vector<std::pair<std::string, std::function<void()>>> calls{
      {"expects one tensor, got 2", [&] { backend->allreduce(two, {}); }},
      {"without gaps", [&] { backend->allreduce(strided, {}); }},
      {"Long cannot be reduced by AVG",
       [&] { backend->allreduce(integers, mean); }},
      {"Float8_e5m2 cannot be reduced by SUM",
       [&] { backend->allreduce(small, {}); }},
      {"root 4 is not a rank of a group of 4",
       [&] { backend->broadcast(tensors, outside); }},
      {"4 times 4 elements",
       [&] { backend->_allgather_base(whole, tensors[0], {}); }},
      {"one entry for each of 4 ranks, got 2",
       [&] { backend->allgather(lists, tensors, {}); }}};
  for (const auto& [text, call] : calls) {
    REQUIRE_THAT(error_of<c10::ValueError>(call), Has(text));
  }
  backend->allreduce(tensors, {})->wait();
}

} // namespace ddp::test::hierarchical_work_test
