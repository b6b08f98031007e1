#include <tests/support/counting_store.h>
#include <tests/support/failures.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/metrics.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/process_group/wait_report.h>
#include <ddp/reducer.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace ddp::test::collective_wait_test {

using detail::Failure;
using detail::FailureStore;
using std::chrono::seconds;

/// A store whose requests fail with `error`.
class FailingStore : public c10d::PrefixStore {
 public:
  FailingStore()
      : c10d::PrefixStore("failing", c10::make_intrusive<c10d::HashStore>()) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::intrusive_ptr<c10d::Store>::reclaim_copy(this);
  }
  bool check(const std::vector<std::string>& keys) override {
    if (error) {
      std::rethrow_exception(error);
    }
    return c10d::PrefixStore::check(keys);
  }

  std::exception_ptr error;
};

RANKS_TEST(
    "the ranks that a collective waited for in vain are named",
    3,
    ProcessGroupOptions().timeout(seconds(3)),
    kPrompt) {
  auto tensor = torch::ones({4});
  group.all_reduce(tensor); // the second; connecting was the first
  if (group.rank() == 1) {
    meet_at_store(group, {"0", "1", "2"});
    return;
  }
  const auto error = all_reduce_error(group);
  REQUIRE_THAT(
      error,
      Has("all_reduce over gloo failed: timed out after 3 s; ranks 0 and 2 "
          "wait in all_reduce of 4 Float; rank 1 has not reached all_reduce of "
          "4 Float, and is in no call to ddp"));
  meet_at_store(group, {"0", "1", "2"});
}

RANKS_TEST(
    "a rank in the same call of another group is in another one",
    2,
    ProcessGroupOptions().timeout(seconds(4)),
    kPrompt) {
  const auto own = group.duplicate();
  REQUIRE_THAT(
      all_reduce_error(group.rank() == 0 ? group : own),
      Has(" has not reached all_reduce of 4 Float, and is in another one"));
  meet_at_store(group, {"0", "1"});
}

RANKS_TEST(
    "with several groups a rank in no call may be in one of another group",
    3,
    ProcessGroupOptions().timeout(seconds(3)),
    kPrompt) {
  const auto other =
      ProcessGroup::from_c10d(group.duplicate().c10d(), torch::kCPU);
  torch::nn::Linear net(2, 1);
  const Reducer reducer(net, group);
  if (group.rank() != 2) {
    REQUIRE_THAT(
        error_of([&] { net->forward(torch::ones({2})).backward(); }),
        Has("rank 2 has not reached bucket 1 of 1, step 1, and is in no call "
            "of this group. Each rank must run a backward pass",
            "or call finish_backward(). All ranks must make the same calls"));
  }
  meet_at_store(group, {"0", "1", "2"});
}

RANKS_TEST("a future is waited for like a collective", 3, kTimeout, kPrompt) {
  const auto future = [] {
    return c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  };
  const auto complete = future();
  complete->markCompleted(7);
  detail::wait_for(group, *complete, "the hook");
  const auto later = future();
  std::thread thread([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    later->markCompleted(8);
  });
  detail::wait_for(group, *later, "the hook");
  thread.join();
  REQUIRE(later->value().toInt() == 8);

  const auto own = group.duplicate();
  const auto wrong = future();
  wrong->setError(std::make_exception_ptr(std::runtime_error("bad hook")));
  REQUIRE_THAT(
      error_of([&] { detail::wait_for(own, *wrong, "the hook"); }),
      Has("the hook", "bad hook"));

  const auto other = group.duplicate();
  const auto never = future();
  if (group.rank() == 1) {
    detail::report_failure(other, "gave up");
  } else {
    REQUIRE_THAT(
        error_of([&] { detail::wait_for(other, *never, "the hook"); }),
        Has("rank 1 of 3", "gave up"));
  }
  group.barrier();
}

RANKS_TEST(
    "what follows from another rank's failure does not replace it",
    3,
    kTimeout,
    kPrompt) {
  auto& impl = detail::ProcessGroupImpl::of(group);
  if (group.rank() == 1) {
    detail::report_failure(group, "gave up");
  } else {
    const auto never =
        c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    bool looked = false;
    const auto check = [&] { // fails in the last look, after the failure
      const bool failed = !impl.failure_store->read(impl.scope).empty();
      if (std::exchange(looked, failed)) {
        throw detail::WaitFailure{" because of the check"};
      }
    };
    REQUIRE_THAT(
        error_of([&] { detail::wait_for(group, *never, "the hook", check); }),
        Has("because rank 1 of 3", "gave up"));
  }
  meet_at_store(group, {"0", "1", "2"});
}

RANKS_TEST("a failure after a collective does not fail it", 3) {
  auto& impl = detail::ProcessGroupImpl::of(group);
  if (group.rank() == 1) {
    detail::report_failure(group, "a later failure");
  } else {
    bool looked = false;
    detail::wait_with_timeout(impl, [&](std::chrono::milliseconds /*slice*/) {
      // The operation ends, and rank 1 fails, after the first look.
      while (!looked && impl.failure_store->read(impl.scope).empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      return std::exchange(looked, true);
    });
  }
  meet_at_store(group, {"0", "1", "2"});
}

RANKS_TEST(
    "what cannot start after a failure that nobody waited for has its reason",
    2,
    ProcessGroupOptions().backend("shm")) {
  auto own = std::make_optional(group.duplicate());
  if (group.rank() == 0) {
    detail::report_failure(*own, "gave up");
    own.reset(); // leaves
  } else {
    std::vector<Work> forgotten;
    const auto start = [&] {
      forgotten.push_back(own->all_reduce_async(torch::ones({2})));
    };
    std::string error;
    while (error.empty()) {
      try {
        start();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      } catch (const std::exception& thrown) {
        error = thrown.what();
      }
    }
    REQUIRE_THAT(
        error,
        Has("all_reduce_async over shm failed because rank 0 of 2 on host ",
            " failed: gave up"));
  }
  group.barrier();
}

TEST_CASE("a future that does not come ends at the group's timeout") {
  const auto start = Clock::now();
  ranks(3, [start] {
    const auto group =
        init_process_group(ProcessGroupOptions().timeout(seconds(2)));
    const auto never =
        c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    REQUIRE_THAT(
        error_of([&] { detail::wait_for(group, *never, "the hook"); }),
        Has("the hook", "timed out after 2 s"));
    REQUIRE(seconds_since(start) < 20);
  });
}

RANKS_TEST("collectives that come in time cost the store nothing") {
  const auto store = c10::make_intrusive<CountingStore>(group.store());
  auto& impl = detail::ProcessGroupImpl::of(group);
  impl.failure_store = FailureStore::open(store, group.rank(), 3, false);
  REQUIRE(impl.failure_store);
  auto tensor = torch::ones({1000});
  // On a busy machine a rank may be late, and then the store is queried.
  bool in_time = false;
  for (int attempt = 0; attempt < 50 && !in_time; ++attempt) {
    group.barrier(); // so that no rank waits for another's start below
    store->requests = 0;
    double slowest = 0;
    for (int i = 0; i < 100; ++i) {
      const auto start = Clock::now();
      group.all_reduce(tensor);
      group.all_reduce_async(tensor).wait();
      group.broadcast(tensor);
      group.all_gather(tensor);
      slowest = std::max(slowest, seconds_since(start));
    }
    const int requests = store->requests;
    in_time = sum(slowest > 0.15 ? 1 : 0, group) == 0;
    REQUIRE((requests == 0 || !in_time));
  }
  REQUIRE(in_time);
  if (group.rank() == 1) { // the count can count
    std::this_thread::sleep_for(seconds(2));
  }
  group.barrier();
  REQUIRE((group.rank() == 1 || store->requests > 0));
}

TEST_CASE("a backend's reason is told without its way through ranks") {
  detail::ProcessGroupImpl group;
  group.size = 3;
  group.timeout = seconds(14);
  const std::string left = "rank 1 (process 7) has left the group";
  const std::vector<std::pair<std::string, std::string>> reasons{
      {left, left},
      {"all_reduce of 8 bytes over shm on rank 2 of 3 failed: " + left, left},
      {"all_reduce over shm on rank 2 of 3 failed: rank 0 failed: all_reduce "
       "over shm on rank 0 of 3 failed: " +
           left,
       left},
      {"[/gloo/pair.cc:547] Connection closed by peer",
       "Connection closed by peer"},
      {"[enforce fail at /gloo/device.cc:84] ifa != nullptr", "ifa != nullptr"},
      {"[/gloo/unbound_buffer.cc:78] Timed out waiting 14000ms for recv",
       "timed out after 14 s"},
      {"[/gloo", "[/gloo"}};
  for (const auto& [error, reason] : reasons) {
    REQUIRE(detail::reason_of_end(group, error) == reason);
  }
}

TEST_CASE(
    "a failure store tells a group of its own and its ancestors' failures") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto member = [&](int64_t rank) {
    return FailureStore::open(store, rank, 3, false);
  };
  const auto mine = member(0);
  REQUIRE(mine->read("/0").empty());
  member(1)->report("/0", "in\nthe \"first\" \xff");
  member(2)->report("/1", "in the second");
  member(2)->report("", "everywhere", Failure::Kind::kConsequence);
  mine->report("/0", "my own");
  const auto scopes = [&](const std::string& scope) {
    std::vector<std::string> found;
    for (const auto& failure : mine->read(scope)) {
      found.push_back(failure.scope);
    }
    return found;
  };
  using Scopes = std::vector<std::string>;
  REQUIRE(scopes("") == Scopes{""});
  REQUIRE(scopes("/0") == Scopes{"/0", ""});
  REQUIRE(scopes("/0/5") == Scopes{"/0", ""});
  REQUIRE(scopes("/1/0") == Scopes{"/1", ""});
  REQUIRE(scopes("/01") == Scopes{""});
  const auto first = mine->read("/0").front();
  REQUIRE(first.rank == 1);
  REQUIRE(first.text == "in\nthe \"first\" \xef\xbf\xbd");
  REQUIRE(first.kind == Failure::Kind::kOwn);
  member(1)->mark_waiting("/0", 4, "barrier");
  const auto own = mine->mark_waiting("/0", 5, "all_reduce");
  const auto wait_status = [&](int64_t number) {
    std::ostringstream text;
    for (const auto& rank : mine->wait_status("/0", number)) {
      text << (rank.came ? "came, " : "") << rank.call << ";";
    }
    return text.str();
  };
  REQUIRE(wait_status(4) == "came, all_reduce;came, barrier;;");
  REQUIRE(wait_status(5) == "came, all_reduce;barrier;;");
  member(1)->leave();
  REQUIRE(wait_status(4) == "came, all_reduce;came, ;;");
  // One wait is reported at a time.
  const auto later = member(1)->mark_waiting("/0", 6, "later");
  REQUIRE(mine->may_report_wait(*own));
  REQUIRE(!member(1)->may_report_wait(*later));
  mine->leave();
  REQUIRE(member(1)->may_report_wait(*later));
  REQUIRE(!mine->may_report_wait(*own));
  // The first consequence counts, in all groups that are related to its own.
  const auto consequence = [&](int64_t rank, const std::string& scope) {
    return member(rank)->report_consequence(
        scope, "seen by " + std::to_string(rank), own->lines);
  };
  REQUIRE(consequence(1, "/0/2") == "seen by 1");
  REQUIRE(consequence(2, "/1") == "seen by 2");
  REQUIRE(consequence(0, "") == "seen by 1");
  REQUIRE(consequence(0, "/1/0") == "seen by 2");
  REQUIRE(!FailureStore::open(nullptr, 0, 3, false));
}

TEST_CASE("a rank with several waits is in that of the group that asks") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto mine = FailureStore::open(store, 0, 2, false);
  const auto other = FailureStore::open(store, 1, 2, false);
  other->mark_waiting("", 4, "barrier");
  other->mark_waiting("/0", 1, "all_reduce"); // of another thread
  const auto call = [&](const std::string& scope, int64_t number) {
    return mine->wait_status(scope, number).at(1).call;
  };
  REQUIRE(call("", 4) == "barrier");
  REQUIRE(call("/0", 1) == "all_reduce");
  REQUIRE(call("", 5) == "all_reduce"); // this one it has not reached
}

TEST_CASE("only a connection's end counts as the end of the store") {
  const auto store = c10::make_intrusive<FailingStore>();
  const auto failure_store = FailureStore::open(store, 1, 3, false);
  REQUIRE(failure_store);
  store->error = std::make_exception_ptr(std::system_error(
      std::make_error_code(std::errc::resource_unavailable_try_again)));
  REQUIRE(failure_store->read("").empty());
  REQUIRE(!failure_store->has_lost_rank_0());
  store->error = nullptr;

  const std::string line = "no record\n";
  store->append("failure_store/failures", {line.begin(), line.end()});
  FailureStore::open(store, 2, 3, false)->report("", "gave up");
  const auto failures = failure_store->read("");
  REQUIRE(!failure_store->has_lost_rank_0());
  REQUIRE(failures.size() == 1);
  REQUIRE(failures[0].text == "gave up");

  store->error = std::make_exception_ptr(c10::DistNetworkError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, "reset by peer"));
  REQUIRE(failure_store->read("").empty());
  REQUIRE(failure_store->has_lost_rank_0());
  detail::ProcessGroupImpl group;
  group.failure_store = failure_store;
  const detail::heartbeat::Activity activity(
      "barrier"); // which no other rank knows
  REQUIRE_THAT(
      detail::all_ranks(group, 1, "timed out after 60 s", true),
      Has(". All ranks must make the same calls"));
  REQUIRE_THAT(
      detail::all_ranks(group, 1, "rank 2 (process 7) has ended", false),
      Has("Check the last output of the rank that has ended"));
  REQUIRE_THAT(
      detail::all_ranks(group, 1, "Connection closed by peer", false),
      Has("Check the last output of the rank that has ended",
          ". All ranks must make the same calls"));
}

} // namespace ddp::test::collective_wait_test
