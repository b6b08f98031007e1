#include <tests/support/failures.h>
#include <tests/support/shared_page.h>

#include <common/elastic_page.h>
#include <ddp/ddp.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/process_group/uncaught.h>

#include <fcntl.h>

namespace ddp::test::heartbeat_test {

using std::chrono::seconds;

constexpr int kSteps = 3;

using Page = SharedPage<HeartbeatPage>;

/// The activity, read while it is not being written.
std::string activity_of(const Page& page) {
  for (;;) {
    const auto before = page->sequence.load();
    std::string text;
    for (const auto& c : page->activity) {
      text += c.load();
    }
    if (before % 2 == 0 && page->sequence.load() == before) {
      return text.c_str();
    }
  }
}

sigset_t release_signal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  return signals;
}

void wait_for_release() {
  const auto signals = release_signal();
  int number = 0;
  sigwait(&signals, &number);
}

/// Runs three steps of several buckets each, and a barrier. Rank 1 waits until
/// it is released in the last step, and again before the barrier.
void train() {
  const auto signals = release_signal();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const char* value = std::getenv("DDP_HEARTBEAT_FD");
  REQUIRE(value);
  const auto link = std::string("/proc/self/fd/") + value;
  const auto memory = std::filesystem::read_symlink(link);
  const auto group = init_process_group(kTimeout);
  REQUIRE(!std::getenv("DDP_HEARTBEAT_FD"));
  std::error_code closed;
  REQUIRE(std::filesystem::read_symlink(link, closed) != memory);
  torch::nn::Sequential net(
      torch::nn::Linear(64, 64), torch::nn::Linear(64, 64));
  const Reducer reducer(
      net,
      group,
      ReducerOptions().bucket_cap_mb(0.01).first_bucket_cap_mb(0.01));
  for (int step = 1; step <= kSteps; ++step) {
    auto hidden =
        net->at<torch::nn::LinearImpl>(0).forward(torch::ones({2, 64}));
    if (group.rank() == 1 && step == kSteps) { // the second layer is done
      hidden.register_hook([](torch::Tensor) { wait_for_release(); });
    }
    net->at<torch::nn::LinearImpl>(1).forward(hidden).sum().backward();
  }
  if (group.rank() == 1) {
    wait_for_release();
  }
  group.barrier();
}

TEST_CASE("the launcher sees how far each rank is, and in what") {
  std::vector<std::unique_ptr<Page>> pages;
  auto commands = commands_of_ranks(3, train);
  std::vector<Process> processes;
  for (auto& command : commands) {
    pages.push_back(std::make_unique<Page>());
    command.environment[kHeartbeatVariable] = pages.back()->descriptor();
    processes.emplace_back(command);
  }
  const auto& held = *pages.at(1);
  const std::regex early_bucket("bucket ([1-9]) of (?!\\1)[2-9], step 3");
  const std::regex last_bucket("bucket ([2-9]) of \\1, step 3");
  REQUIRE(becomes_true([&] {
    return std::regex_match(activity_of(*pages[0]), last_bucket) &&
        std::regex_match(activity_of(*pages[2]), last_bucket) &&
        std::regex_match(activity_of(held), early_bucket);
  }));
  REQUIRE(held->step == kSteps - 1);
  processes[1].signal(SIGUSR1);
  REQUIRE(becomes_true([&] {
    return held->step == kSteps && activity_of(*pages[0]) == "barrier" &&
        activity_of(*pages[2]) == "barrier";
  }));
  REQUIRE(activity_of(held) == "after step 3");
  const auto beats = held->beats.load();
  REQUIRE(beats > 2 * kSteps);
  processes[1].signal(SIGUSR1);
  for (size_t r = 0; r < 3; ++r) {
    INFO("rank " << r);
    output_of(processes[r].finish(seconds(30)));
    const auto& page = *pages[r];
    REQUIRE(page->version == HeartbeatPage::kVersion);
    REQUIRE(page->joined == 1);
    REQUIRE(page->step == kSteps);
    REQUIRE(page->sequence % 2 == 0);
    REQUIRE(activity_of(page) == "after barrier");
  }
  REQUIRE(held->beats > beats);
}

TEST_CASE("what a program reports is progress to the launcher") {
  constexpr uint64_t kReports = 1000;
  auto commands = commands_of_ranks(1, [] {
    const auto group = init_process_group(kTimeout);
    for (uint64_t i = 0; i < kReports; ++i) {
      report_progress();
    }
  });
  const Page page;
  commands[0].environment[kHeartbeatVariable] = page.descriptor();
  output_of(run(commands[0], seconds(30)));
  REQUIRE(page->joined == 1);
  REQUIRE(page->beats >= kReports);
}

TEST_CASE("a rank that waits for others has not joined") {
  Page page;
  auto commands = commands_of_ranks(3, [] { (void)init_process_group(); });
  if (commands.empty()) {
    return;
  }
  commands[2].environment[kHeartbeatVariable] = page.descriptor();
  Process alone(commands[2]);
  REQUIRE(
      becomes_true([&] { return page->version == HeartbeatPage::kVersion; }));
  REQUIRE(
      becomes_true([&] { return activity_of(page) == "init_process_group"; }));
  REQUIRE(page->joined == 0);
  const Process first(commands[0]);
  const Process second(commands[1]);
  REQUIRE(alone.finish(seconds(30)).exit_code == 0);
  REQUIRE(page->joined == 1);
}

TEST_CASE("the launcher sees how large a group is that another rank fails") {
  std::vector<std::unique_ptr<Page>> pages;
  auto commands = commands_of_ranks(3, [] {
    const auto group = init_process_group(kTimeout);
    const auto part = group.split(group.rank() == 0 ? -1 : 0);
    if (group.rank() == 1) {
      detail::report_failure(part, "had enough");
    } else if (group.rank() == 2) {
      all_reduce_error(part);
    }
    if (group.rank() == 0) {
      detail::report_failure(group, "had enough, too");
    } else {
      all_reduce_error(group);
    }
    meet_at_store(group, {"0", "1", "2"});
  });
  for (auto& command : commands) {
    pages.push_back(std::make_unique<Page>());
    command.environment[kHeartbeatVariable] = pages.back()->descriptor();
  }
  for (const auto& outcome : run(commands, seconds(30))) {
    output_of(outcome);
  }
  // Rank 1 left its part by itself; for rank 2, the first failure counts.
  const std::vector<uint64_t> sizes{0, 3, 2};
  for (size_t r = 0; r < pages.size(); ++r) {
    INFO("rank " << r);
    REQUIRE((*pages[r])->failed_by_another == sizes[r]);
  }
}

RANKS_TEST("a failure is over once the next group has formed", 3, kTimeout) {
  const auto own = group.duplicate();
  if (group.rank() == 1) {
    const auto never =
        c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    const auto fail = [&] { detail::report_failure(own, "had enough"); };
    REQUIRE_THAT(
        error_of([&] { detail::wait_for(own, *never, "the hook", fail); }),
        Has("because another collective failed: this rank failed"));
  } else {
    all_reduce_error(own);
  }
  REQUIRE(detail::heartbeat::is_failed_by_another() == (group.rank() != 1));
  const auto next = group.duplicate();
  REQUIRE_FALSE(detail::heartbeat::is_failed_by_another());
}

RANKS_TEST("a rank that its own exception ends is no victim", 3, kTimeout) {
  const auto other = group.duplicate();
  if (group.rank() == 1) {
    try {
      throw_boom();
    } catch (...) {
      detail::report_exception();
    }
    all_reduce_error(other); // as on another thread, until the process ends
  } else {
    all_reduce_error(group);
  }
  if (group.rank() == 2) {
    detail::report_failure(other, "lost rank 1");
  }
  REQUIRE(detail::heartbeat::is_failed_by_another() == (group.rank() != 1));
  meet_at_store(group, {"0", "1", "2"});
}

TEST_CASE("what is no page of a heartbeat is left alone") {
  const Page too_small(sizeof(HeartbeatPage) - 1);
  const TemporaryFolder folder;
  const std::string contents(2 * sizeof(RankPage), 'A');
  write_text(folder / "data", contents);
  const FileDescriptor data(open((folder / "data").c_str(), O_RDWR));
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  for (const auto& values : std::vector<std::vector<std::string>>{
           {too_small.descriptor(),
            std::to_string(ends[1]),
            std::to_string(data.get())},
           {"none", "100000", "99999999999999999999"}}) {
    auto commands = commands_of_ranks(3, [] {
      const auto descriptor = static_cast<int>(
          std::strtol(std::getenv("DDP_HEARTBEAT_FD"), nullptr, 10));
      const bool was_open = fcntl(descriptor, F_GETFD) != -1;
      const auto group = init_process_group(kTimeout);
      REQUIRE(!std::getenv("DDP_HEARTBEAT_FD"));
      REQUIRE((fcntl(descriptor, F_GETFD) != -1) == was_open);
      group.barrier();
    });
    for (size_t r = 0; r < commands.size(); ++r) {
      commands[r].environment[kHeartbeatVariable] = values[r];
    }
    for (const auto& outcome : run(commands, seconds(30))) {
      output_of(outcome);
    }
  }
  close(ends[0]);
  close(ends[1]);
  REQUIRE(too_small->version == 0);
  REQUIRE(too_small->beats == 0);
  REQUIRE((read_text(folder / "data") == contents));
}

} // namespace ddp::test::heartbeat_test
