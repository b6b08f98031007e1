#include <tests/support/catch.h>
#include <tests/support/ranks.h>
#include <tests/support/temporary_folder.h>

#include <ddp/detail/collective_wait.h>
#include <ddp/module_state.h>
#include <ddp/process_group.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <unistd.h>

#include <csignal>
#include <fstream>
#include <optional>
#include <thread>

using ddp::ProcessGroup;
using ddp::detail::FailureBoard;
using ddp::test::ranks;
using std::chrono::seconds;

namespace {

using Clock = std::chrono::steady_clock;

// Far above what the tests allow, so that a wait for it shows.
const auto kTimeout = ddp::ProcessGroupOptions().timeout(seconds(60));

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void throw_boom() {
  throw std::runtime_error("boom in forward");
}

/// Ends this process as an exception does that nobody catches; the tests'
/// processes catch all.
void throw_uncaught() {
  std::thread(throw_boom).join();
}

/// The text of the error that `function` throws.
template <typename Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const c10::DistBackendError& error) {
    return error.what_without_backtrace();
  }
  FAIL("nothing was thrown");
  return "";
}

std::string all_reduce_error(const ProcessGroup& group) {
  auto tensor = torch::ones({4});
  return error_of([&] { group.all_reduce(tensor); });
}

/// Returns when all of `those`, of whom rank 0 is one, have called it. Over the
/// store, which ends with rank 0.
void meet_at_store(
    const ProcessGroup& group,
    const std::vector<std::string>& those) {
  const auto store = group.store();
  for (const std::string step : {"here/", "left/"}) {
    store->set(step + std::to_string(group.rank()), std::string("1"));
    std::vector<std::string> keys;
    for (const auto& rank : those) {
      keys.push_back(step + rank);
    }
    if (step == "here/" || group.rank() == 0) {
      store->wait(keys, seconds(20));
    }
  }
}

} // namespace

TEST_CASE("an exception that a rank does not catch reaches its peers") {
  for (const int failing : {2, 0}) { // 0 takes the store with it
    ddp::test::RankOptions options;
    options.timeout = seconds(30);
    options.expected_exit_codes = {0, 0, 0, 0};
    options.expected_exit_codes[failing] = 134;
    const auto outcomes = ranks(
        4,
        [failing] {
          const auto group = ddp::init_process_group(kTimeout);
          if (group.rank() == failing) {
            throw_uncaught();
          }
          const auto error = all_reduce_error(group);
          const auto rank = std::to_string(failing);
          REQUIRE_THAT(
              error,
              ContainsSubstring("rank " + std::to_string(group.rank())) &&
                  ContainsSubstring("all_reduce over gloo failed") &&
                  ContainsSubstring("because rank " + rank + " of 4 on host") &&
                  ContainsSubstring("boom in forward"));
        },
        options);
    for (const auto& outcome : outcomes) {
      REQUIRE(outcome.seconds.count() < 10);
    }
  }
}

TEST_CASE("an uncaught exception reaches ranks that wait for a duplicate") {
  ddp::test::RankOptions options;
  options.timeout = seconds(30);
  options.expected_exit_codes = {0, 134, 0};
  ranks(
      3,
      [] {
        const auto group = ddp::init_process_group(kTimeout);
        if (group.rank() == 1) {
          throw_uncaught();
        }
        REQUIRE_THAT(
            error_of([&] { group.duplicate(); }),
            ContainsSubstring("boom in forward"));
      },
      options);
}

TEST_CASE("peers of a rank that reports a failure and lives on fail with it") {
  ddp::test::RankOptions options;
  options.timeout = seconds(30);
  ranks(
      4,
      [] {
        const auto group = ddp::init_process_group(kTimeout);
        const auto start = Clock::now();
        if (group.rank() == 1) {
          ddp::detail::report_failure(group, "no memory for a bucket");
          REQUIRE_THAT(
              all_reduce_error(group), ContainsSubstring("this rank gave up"));
        } else {
          const auto error = all_reduce_error(group);
          REQUIRE_THAT(
              error,
              ContainsSubstring("rank 1 of 4") &&
                  ContainsSubstring("no memory for a bucket"));
          REQUIRE_THAT(
              all_reduce_error(group),
              ContainsSubstring("failed before") &&
                  ContainsSubstring("no memory for a bucket"));
        }
        REQUIRE(seconds_since(start) < 5);
        meet_at_store(group, {"0", "1", "2", "3"});
      },
      options);
}

TEST_CASE("a failure in a duplicate leaves other groups alone") {
  ddp::test::RankOptions options;
  options.timeout = seconds(30);
  ranks(
      3,
      [] {
        const auto group = ddp::init_process_group(kTimeout);
        const auto start = Clock::now();
        {
          const auto first = group.duplicate();
          const auto child = first.duplicate();
          if (first.rank() == 2) {
            ddp::detail::report_failure(first, "first attempt");
          } else {
            REQUIRE_THAT(
                all_reduce_error(first), ContainsSubstring("first attempt"));
            REQUIRE_THAT(
                all_reduce_error(child), ContainsSubstring("first attempt"));
          }
        }
        const auto second = group.duplicate();
        auto tensor = torch::ones({4});
        if (group.rank() == 1) { // long enough that the others look
          std::this_thread::sleep_for(std::chrono::milliseconds(700));
        }
        second.all_reduce(tensor);
        group.all_reduce(tensor);
        REQUIRE(tensor.eq(9).all().item<bool>());
        REQUIRE(seconds_since(start) < 15);
      },
      options);
}

TEST_CASE("the ranks that a collective waited for in vain are named") {
  ddp::test::RankOptions options;
  options.timeout = seconds(30);
  ranks(
      3,
      [] {
        const auto group = ddp::init_process_group(
            ddp::ProcessGroupOptions().timeout(seconds(3)));
        auto tensor = torch::ones({4});
        group.all_reduce(tensor); // the second; connecting was the first
        if (group.rank() == 1) {
          meet_at_store(group, {"0", "1", "2"});
          return;
        }
        const auto error = all_reduce_error(group);
        REQUIRE_THAT(
            error,
            ContainsSubstring("rank 1 of 3 has not come to collective 3") &&
                !ContainsSubstring("rank 0 of 3 has not come") &&
                !ContainsSubstring("rank 2 of 3 has not come"));
        meet_at_store(group, {"0", "1", "2"});
      },
      options);
}

TEST_CASE("a rank that is killed ends the others' waits, also indirectly") {
  for (const int killed : {1, 0}) {
    ddp::test::RankOptions options;
    options.timeout = seconds(30);
    options.expected_exit_codes = {3, 3, 3, 3};
    options.expected_exit_codes[killed] = 137;
    const auto outcomes = ranks(
        4,
        [killed] {
          const auto group = ddp::init_process_group(kTimeout);
          if (group.rank() == killed) {
            raise(SIGKILL);
          }
          REQUIRE_THAT(
              all_reduce_error(group),
              ContainsSubstring("all_reduce over gloo failed"));
          if (killed != 0) { // no rank's end helps another
            meet_at_store(group, {"0", "2", "3"});
          }
          std::exit(3); // NOLINT
        },
        options);
    for (const auto& outcome : outcomes) {
      REQUIRE(outcome.seconds.count() < 12);
    }
  }
}

TEST_CASE("a group that failed is dropped at once") {
  ddp::test::RankOptions options;
  options.timeout = seconds(30);
  ranks(
      3,
      [] {
        const auto group = ddp::init_process_group(kTimeout);
        std::optional<ProcessGroup> failing = group.duplicate();
        if (group.rank() == 1) {
          ddp::detail::report_failure(*failing, "gave up");
        } else {
          auto tensor = torch::ones({4});
          REQUIRE_THAT(
              error_of([&] { failing->all_reduce_async(tensor).wait(); }),
              ContainsSubstring("gave up"));
          const auto start = Clock::now();
          failing.reset();
          REQUIRE(seconds_since(start) < 1);
        }
        // Till then rank 1 keeps its end of the connections.
        meet_at_store(group, {"0", "1", "2"});
      },
      options);
}

TEST_CASE("a group with a collective that was left is dropped at once") {
  ddp::test::RankOptions options;
  options.timeout = seconds(30);
  ranks(
      3,
      [] {
        const auto group = ddp::init_process_group(kTimeout);
        std::optional<ProcessGroup> left = group.duplicate();
        if (group.rank() != 1) {
          auto tensor = torch::ones({4});
          const auto start = Clock::now();
          { // as where an exception comes between
            const auto work = left->all_reduce_async(tensor);
          }
          left.reset();
          REQUIRE(seconds_since(start) < 1);
        }
        meet_at_store(group, {"0", "1", "2"});
      },
      options);
}

TEST_CASE("a process whose collectives hang ends at once") {
  for (const bool dropped : {false, true}) {
    ddp::test::RankOptions options;
    options.timeout = seconds(30);
    options.expected_exit_codes = {1, 1, 1};
    const auto outcomes = ranks(
        3,
        [dropped] {
          std::optional<ProcessGroup> group = ddp::init_process_group(kTimeout);
          if (group->rank() == 2) { // keeps its connections while rank 0 lives
            ddp::detail::report_failure(*group, "gave up");
            REQUIRE_THROWS(group->store()->wait({"never"}, seconds(25)));
          } else {
            all_reduce_error(*group);
          }
          if (dropped) { // as `main` does when it returns
            group.reset();
          }
          std::exit(1); // NOLINT: a test's process ends without destructors
        },
        options);
    for (const auto& outcome : outcomes) {
      REQUIRE(outcome.seconds.count() < 10);
    }
  }
}

TEST_CASE("a future is waited for like a collective") {
  ddp::test::RankOptions options;
  options.timeout = seconds(30);
  ranks(
      3,
      [] {
        const auto group = ddp::init_process_group(kTimeout);
        const auto future = [] {
          return c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
        };
        const auto complete = future();
        complete->markCompleted(7);
        ddp::detail::wait_for(group, *complete, "the hook");
        const auto later = future();
        std::thread thread([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          later->markCompleted(8);
        });
        ddp::detail::wait_for(group, *later, "the hook");
        thread.join();
        REQUIRE(later->value().toInt() == 8);

        const auto own = group.duplicate();
        const auto wrong = future();
        wrong->setError(
            std::make_exception_ptr(std::runtime_error("bad hook")));
        REQUIRE_THAT(
            error_of([&] { ddp::detail::wait_for(own, *wrong, "the hook"); }),
            ContainsSubstring("the hook") && ContainsSubstring("bad hook"));

        const auto other = group.duplicate();
        const auto never = future();
        if (group.rank() == 1) {
          ddp::detail::report_failure(other, "gave up");
        } else {
          REQUIRE_THAT(
              error_of(
                  [&] { ddp::detail::wait_for(other, *never, "the hook"); }),
              ContainsSubstring("rank 1 of 3") && ContainsSubstring("gave up"));
        }
        group.barrier();
      },
      options);
}

TEST_CASE("a future that does not come ends at the group's timeout") {
  const auto start = Clock::now();
  ranks(3, [start] {
    const auto group =
        ddp::init_process_group(ddp::ProcessGroupOptions().timeout(seconds(2)));
    const auto never =
        c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    REQUIRE_THAT(
        error_of([&] { ddp::detail::wait_for(group, *never, "the hook"); }),
        ContainsSubstring("the hook") &&
            ContainsSubstring("timed out after 2 s"));
    REQUIRE(seconds_since(start) < 20);
  });
}

TEST_CASE("a group that was handed over has a board of its own") {
  ddp::test::RankOptions options;
  options.timeout = seconds(30);
  ranks(
      3,
      [] {
        const auto group = ddp::init_process_group(kTimeout);
        {
          const auto base = group.duplicate();
          const auto handed = ProcessGroup::from_c10d(base.c10d());
          if (group.rank() == 1) {
            ddp::detail::report_failure(handed, "gave up");
          } else {
            REQUIRE_THAT(
                all_reduce_error(handed), ContainsSubstring("gave up"));
          }
          meet_at_store(group, {"0", "1", "2"}); // nobody ends before
        }
        group.barrier();
      },
      options);
}

TEST_CASE("an uncaught exception is written to the launcher's error file") {
  ddp::test::RankOptions options;
  std::unique_ptr<ddp::test::TemporaryFolder> folder;
  std::string path;
  if (!std::getenv("TORCHELASTIC_ERROR_FILE")) { // else: a rank's process
    folder = std::make_unique<ddp::test::TemporaryFolder>();
    path = *folder / "error.json";
  }
  options.timeout = seconds(30);
  options.environment["TORCHELASTIC_ERROR_FILE"] = path;
  options.expected_exit_codes = {0, 134, 0};
  const auto outcomes = ranks(
      3,
      [] {
        const auto group = ddp::init_process_group(kTimeout);
        if (group.rank() == 1) {
          throw_uncaught();
        }
        all_reduce_error(group);
      },
      options);
  const auto content = nlohmann::json::parse(std::ifstream(path));
  const auto& message = content.at("message");
  REQUIRE(message.at("message") == "std::runtime_error: boom in forward");
  REQUIRE(
      std::stoll(message.at("extraInfo").at("timestamp").get<std::string>()) >
      1600000000);
}

TEST_CASE("uncaught exceptions are not reported where that is off") {
  ddp::test::RankOptions options;
  options.timeout = seconds(30);
  options.expected_exit_codes = {0, 134, 0};
  ranks(
      3,
      [] {
        const auto group = ddp::init_process_group(
            ddp::ProcessGroupOptions(kTimeout).report_uncaught(false));
        if (group.rank() == 1) {
          throw_uncaught();
        }
        REQUIRE_THAT(
            all_reduce_error(group), !ContainsSubstring("boom in forward"));
      },
      options);
}

namespace {

/// A store that counts the requests to it.
class CountingStore : public c10d::PrefixStore {
 public:
  explicit CountingStore(c10::intrusive_ptr<c10d::Store> store)
      : c10d::PrefixStore("counted", std::move(store)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::intrusive_ptr<c10d::Store>::reclaim_copy(this);
  }
  bool check(const std::vector<std::string>& keys) override {
    ++requests;
    return c10d::PrefixStore::check(keys);
  }
  std::vector<uint8_t> get(const std::string& key) override {
    ++requests;
    return c10d::PrefixStore::get(key);
  }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    ++requests;
    c10d::PrefixStore::set(key, value);
  }

  std::atomic<int> requests{0};
};

} // namespace

TEST_CASE("collectives that come in time cost the store nothing") {
  ranks(3, [](ProcessGroup group) {
    const auto store = c10::make_intrusive<CountingStore>(group.store());
    auto& impl = ProcessGroup::Impl::of(group);
    impl.board = FailureBoard::open(store, group.rank(), 3, false);
    REQUIRE(impl.board);
    group.barrier(); // so that nobody waits for another's start below
    store->requests = 0;
    auto tensor = torch::ones({1000});
    for (int i = 0; i < 100; ++i) {
      group.all_reduce(tensor);
      group.all_reduce_async(tensor).wait();
      group.broadcast(tensor);
      group.all_gather(tensor);
    }
    REQUIRE(store->requests == 0);
    if (group.rank() == 1) { // the count can count
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
    }
    group.barrier();
    REQUIRE((group.rank() == 1 || store->requests > 0));
  });
}

TEST_CASE("a board tells a group of its own and its ancestors' failures") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto board = [&](int64_t rank) {
    return FailureBoard::open(store, rank, 3, false);
  };
  const auto mine = board(0);
  REQUIRE(mine->read("/0").empty());
  board(1)->report("/0", "in\nthe \"first\" \xff");
  board(2)->report("/1", "in the second");
  board(2)->report("", "everywhere", /*consequence=*/true);
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
  REQUIRE(!first.consequence);
  board(1)->attend("/0", 4);
  mine->attend("/0", 5);
  REQUIRE(mine->absent("/0", 4) == std::vector<int64_t>{2});
  REQUIRE(mine->absent("/0", 5) == std::vector<int64_t>{1, 2});
  REQUIRE(!FailureBoard::open(nullptr, 0, 3, false));
}

TEST_CASE("broadcast_tensors keeps values of mixed dtypes and layouts") {
  ranks(3, [](ProcessGroup group) {
    torch::manual_seed(group.rank());
    const auto make = [] {
      return std::vector<at::Tensor>{
          torch::randn({3, 4}),
          torch::randint(1000, {5}, torch::kLong),
          torch::randn({4, 3}).t(),
          torch::randn({}, torch::kDouble),
          torch::empty({0}),
          torch::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast),
          torch::tensor({true, false})};
    };
    auto tensors = make();
    tensors[0].requires_grad_();
    const auto version = tensors[0]._version();
    const auto strides = tensors[5].strides().vec();
    ddp::broadcast_tensors(tensors, group);
    torch::manual_seed(0);
    const auto expected = make();
    for (size_t i = 0; i < tensors.size(); ++i) {
      REQUIRE(tensors[i].equal(expected[i]));
    }
    REQUIRE(tensors[0]._version() == version);
    REQUIRE(tensors[5].strides().vec() == strides);
  });
}
