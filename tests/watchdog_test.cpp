#include <tests/support/counting_store.h>
#include <tests/support/failures.h>
#include <tests/support/fake_gpu.h>

#include <ddp/backends/nccl.h>
#include <ddp/elastic.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/init/watchdog.h>
#include <ddp/support/detached_task.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <sys/resource.h>

namespace ddp::test::watchdog_test {

using detail::Watchdog;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// Like NCCL's, its collectives end only by an abort.
class StuckBackend : public c10d::Backend {
 public:
  using c10d::Backend::Backend;

  const std::string getBackendName() const override {
    return "stuck";
  }

  c10d::ErrorType getError() override {
    return fake_gpu::host_waits() > last_wait ? c10d::ErrorType::TIMEOUT
                                              : error.load();
  }

  void abort() override {
    aborted = true;
  }

  /// Waits like a thread that waits for a stream: it checks nothing else.
  bool is_aborted_within(seconds time) const {
    const auto start = Clock::now();
    while (!aborted && Clock::now() - start < time) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    return aborted;
  }

  std::atomic<c10d::ErrorType> error{c10d::ErrorType::SUCCESS};
  std::atomic<bool> aborted{false};
  /// In the host's next wait for the device, a collective exceeds its timeout.
  std::atomic<int64_t> last_wait{std::numeric_limits<int64_t>::max()};
};

struct Watched {
  explicit Watched(const ProcessGroup& group)
      : backend(c10::make_intrusive<StuckBackend>(
            static_cast<int>(group.rank()),
            static_cast<int>(group.size()))),
        watch(detail::ProcessGroupImpl::of(group), backend) {}

  c10::intrusive_ptr<StuckBackend> backend;
  Watchdog watch;
};

/// During its lifetime no request to the store gets a thread: the idle ones are
/// kept busy, and no memory is left for a new thread's stack.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    getrlimit(RLIMIT_AS, &before_);
    pthread_attr_t attributes;
    size_t stack = 0;
    pthread_getattr_default_np(&attributes);
    pthread_attr_getstacksize(&attributes, &stack);
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    auto limit = before_;
    limit.rlim_cur = pages * getpagesize() + stack / 2;
    setrlimit(RLIMIT_AS, &limit);
    try {
      while (true) {
        detail::start_detached([end = end_] { end.wait(); });
      }
    } catch (const std::system_error&) { // expected
    }
  }

  ~NoMoreThreads() {
    setrlimit(RLIMIT_AS, &before_);
    ended_.set_value();
  }

 private:
  rlimit before_{};
  std::promise<void> ended_;
  std::shared_future<void> end_ = ended_.get_future().share();
};

/// A group whose flight records are written to `folder`.
ProcessGroup recording_group(
    const std::string& folder,
    const ProcessGroupOptions& options = kTimeout) {
  set_variables({{"TORCH_FR_DUMP_TEMP_FILE", folder + "record_"}});
  return init_process_group(options);
}

STARTED_TEST(
    "a rank's failure aborts what the others wait for on a GPU",
    4,
    kPrompt) {
  const auto group = recording_group(folder);
  const Watched watched(group);
  if (group.rank() == 1) {
    detail::report_failure(group, "no memory for a bucket");
  }
  REQUIRE(watched.backend->is_aborted_within(seconds(5)));
  REQUIRE_THAT(all_reduce_error(group), Has("no memory for a bucket"));
  meet_at_store(group, {"0", "1", "2", "3"});
}

STARTED_TEST("what a backend finds breaks the group on all ranks", 3, kPrompt) {
  const auto group = recording_group(folder);
  const Watched watched(group);
  if (group.rank() == 2) {
    watched.backend->error = c10d::ErrorType::TIMEOUT;
  }
  REQUIRE(watched.backend->is_aborted_within(seconds(10)));
  REQUIRE_THAT(all_reduce_error(group), Has("was not complete after 60 s"));
  if (backends::nccl::available()) {
    const auto* const path = std::getenv("TORCH_FR_DUMP_TEMP_FILE");
    const auto record = path + std::to_string(group.rank());
    REQUIRE_THAT(all_reduce_error(group), Has(record));
    REQUIRE(std::filesystem::exists(record));
  }
  meet_at_store(group, {"0", "1", "2"});
}

TEST_CASE("a launch that waits for others for too long breaks the group") {
  const SharedFolder folder;
  const auto outcomes = ranks(3, kPrompt, [&] {
    const auto group = recording_group(
        folder.path,
        ProcessGroupOptions().timeout(seconds(5)).wait_notice(seconds(2)));
    const Watched watched(group);
    if (group.rank() == 2) {
      const detail::heartbeat::Activity activity("all_reduce");
      auto& impl = detail::ProcessGroupImpl::of(group);
      const std::lock_guard<std::recursive_mutex> lock(impl.launching);
      ++impl.launched;
      REQUIRE_FALSE(watched.backend->is_aborted_within(seconds(4)));
      REQUIRE(watched.backend->is_aborted_within(seconds(20)));
    }
    REQUIRE(watched.backend->is_aborted_within(seconds(30)));
    REQUIRE_THAT(
        all_reduce_error(group),
        Has("timed out after 5 s",
            "ranks 0 and 1 have not reached all_reduce"));
    meet_at_store(group, {"0", "1", "2"});
  });
  REQUIRE_THAT(
      outcomes[2].output,
      Has("has waited for 2 s in all_reduce; ranks 0 and 1 have not reached"));
}

STARTED_TEST("a failure in a duplicate aborts that one only", 3, kPrompt) {
  const auto group = recording_group(folder);
  const auto duplicate = group.duplicate();
  const Watched of_group(group);
  const Watched of_duplicate(duplicate);
  if (group.rank() == 1) {
    detail::report_failure(duplicate, "one attempt");
  }
  REQUIRE(of_duplicate.backend->is_aborted_within(seconds(5)));
  group.barrier();
  REQUIRE_FALSE(of_group.backend->aborted);
}

STARTED_TEST(
    "when rank 0 is killed, groups with it are aborted and others not",
    3,
    RankOptions(kPrompt).exit_codes({{0, 128 + SIGKILL}})) {
  const auto group = recording_group(folder);
  const auto part = group.split(group.rank() == 0 ? 0 : 1, 0);
  meet_at_store(group, {"0", "1", "2"});
  if (group.rank() == 0) {
    std::raise(SIGKILL);
  }
  const Watched of_part(part);
  const Watched of_group(group);
  REQUIRE(of_group.backend->is_aborted_within(seconds(15)));
  REQUIRE_THAT(
      all_reduce_error(group), Has("the process that serves the store"));
  part.barrier();
  REQUIRE_FALSE(of_part.backend->is_aborted_within(seconds(1)));
}

STARTED_TEST(
    "a rank that gets no thread for the store keeps its group",
    3,
    kPrompt) {
  const auto group = recording_group(folder);
  const Watched watched(group);
  {
    std::optional<NoMoreThreads> none;
    if (group.rank() == 1) {
      none.emplace();
    }
    // Longer than the wait for rank 0's end.
    REQUIRE_FALSE(watched.backend->is_aborted_within(seconds(6)));
  }
  group.barrier();
}

/// A duplicate of the group, for the device of fake_gpu.
ProcessGroup gpu_duplicate(
    const ProcessGroup& group,
    const std::string& folder) {
  set_variables({{"TORCH_FR_DUMP_TEMP_FILE", folder + "record_"}});
  fake_gpu::install();
  const auto duplicate = group.duplicate();
  detail::ProcessGroupImpl::of(duplicate).device = fake_gpu::kDevice;
  return duplicate;
}

RANKS_TEST("values that an abort leaves on a GPU are not saved") {
  const auto duplicate = gpu_duplicate(group, folder);
  const Watched watched(duplicate);
  auto values = torch::ones({4});
  TrainingState state;
  state.add("values", values);
  state.save(folder + "run.pt", group);
  values.zero_();
  meet_at_store(group, {"0", "1", "2"});
  watched.backend->last_wait = fake_gpu::host_waits();
  REQUIRE_THAT(
      error_of([&] { state.save(folder + "run.pt", group); }),
      Has("a collective on the GPU was"));
  REQUIRE(state.load(folder + "run.pt", ProcessGroup()));
  REQUIRE(values.eq(1).all().item<bool>());
}

STARTED_TEST("values that an abort leaves on a GPU are not committed") {
  elastic([&](ElasticRun& run) {
    const auto duplicate = gpu_duplicate(run.group(), folder);
    const Watched watched(duplicate);
    auto values = torch::ones({4}, fake_gpu::kDevice);
    TrainingState state;
    state.add("values", values);
    run.sync(state);
    run.step();
    meet_at_store(run.group(), {"0", "1", "2"});
    watched.backend->last_wait = fake_gpu::host_waits();
    const auto copies = fake_gpu::work_counts().copies;
    REQUIRE_THAT(
        error_of([&] { run.step(); }), Has("a collective on the GPU was"));
    REQUIRE(fake_gpu::work_counts().copies == copies);
  });
}

int threads_called(const std::string& name) {
  int count = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::string found;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, found);
    count += found == name;
  }
  return count;
}

STARTED_TEST("one thread watches a group and those made of it", 4, kPrompt) {
  const auto group = recording_group(folder);
  const auto duplicate = group.duplicate();
  const auto part = duplicate.split(group.rank() % 2, 0);
  REQUIRE(threads_called("ddp_watchdog") == 0);
  const Watched of_group(group);
  const Watched of_duplicate(duplicate);
  const Watched of_part(part);
  // A thread gets its name a moment after its start.
  std::this_thread::sleep_for(seconds(1));
  REQUIRE(threads_called("ddp_watchdog") == 1);
}

TEST_CASE("a look asks the store once, however many ranks there are") {
  for (const int size : {4, 16, 1000}) {
    const auto store = c10::make_intrusive<CountingStore>(
        c10::make_intrusive<c10d::HashStore>());
    detail::ProcessGroupImpl impl;
    impl.rank = 1;
    impl.size = size;
    impl.failure_store = detail::FailureStore::open(store, 1, size, false);
    REQUIRE(impl.failure_store);
    const auto watched = std::make_shared<detail::WatchedGroup>(
        impl, c10::make_intrusive<StuckBackend>(1, size));
    store->requests = 0;
    for (int i = 0; i < 10; ++i) {
      watched->look();
    }
    REQUIRE(store->requests == 10);
    // Four times a second; with many ranks, less often per rank.
    REQUIRE(watched->interval() == milliseconds(std::max(250, size)));
  }
}

STARTED_TEST("a watch that has nothing to do ends at once", 2, kPrompt) {
  const auto group = recording_group(folder);
  const auto start = Clock::now();
  for (int i = 0; i < 80; ++i) {
    const Watched watched(group);
  }
  REQUIRE(seconds_since(start) < 10); // 40 intervals
}

/// A store whose host is lost once `silent` is set: requests get no answer.
class SilentStore : public CountingStore {
 public:
  using CountingStore::CountingStore;

  bool check(const std::vector<std::string>& keys) override {
    while (silent) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    return CountingStore::check(keys);
  }

  std::atomic<bool> silent{false};
};

TEST_CASE("a store that does not answer is not waited for again and again") {
  const auto store =
      c10::make_intrusive<SilentStore>(c10::make_intrusive<c10d::HashStore>());
  const auto failures = detail::FailureStore::open(store, 1, 3, false);
  REQUIRE(failures);
  failures->report("", "before", detail::Failure::Kind::kOwn);
  store->silent = true;
  const auto start = Clock::now();
  for (int i = 0; i < 6; ++i) { // each would wait for five seconds
    failures->report("", "meanwhile", detail::Failure::Kind::kOwn);
  }
  REQUIRE(seconds_since(start) < 10);
  store->silent = false;
}

} // namespace ddp::test::watchdog_test
