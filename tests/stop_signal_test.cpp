// Signals that stop a training, sent to real ranks.
#include <ddp/elastic.h>
#include <ddp/process_group/process_group_impl.h>
#include <tests/support/launched.h>
#include <tests/support/mpi_ranks.h>

namespace ddp::test::stop_signal_test {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kWorld = 3;
constexpr int kRounds = 6;
constexpr int kShownSteps = 300;

/// Prints a line that other ranks' output cannot split.
void say(const std::string& text) {
  const auto line = text + "\n";
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) {
    std::abort();
  }
}

/// Trains until a stop is requested; returns the step.
int train(
    const ProcessGroup& group,
    StopSignal& stop,
    const std::string& name) {
  auto tensor = torch::zeros({64});
  for (int step = 0;; ++step) {
    tensor.fill_(1);
    group.all_reduce(tensor);
    REQUIRE(tensor[0].item<float>() == static_cast<float>(group.size()));
    if (step % 20 == 0 && step <= kShownSteps) {
      say(name + " step " + std::to_string(step) + ".");
    }
    if (stop.requested()) {
      REQUIRE(stop.requested()); // also in later calls
      return step;
    }
  }
}

void train_and_say() {
  const auto group = init_process_group();
  StopSignal stop(group);
  say("rank " + std::to_string(group.rank()) + " has pid " +
      std::to_string(getpid()) + ".");
  const auto step = train(group, stop, "train");
  say("rank " + std::to_string(group.rank()) + " stopped at " +
      std::to_string(step) + ".");
  group.barrier(); // no rank ends while another may still be sent a signal
}

bool is_there_on_all(const ProcessGroup& group, const std::string& path) {
  auto there = torch::tensor(int64_t{access(path.c_str(), F_OK) == 0});
  group.all_reduce(there, ReduceOp::kMin);
  return there.item<int64_t>() == 1;
}

std::string told_file(const std::string& folder, int round) {
  return folder + "/told_" + std::to_string(round);
}

std::string name_of(int round) {
  return "round " + std::to_string(round);
}

void train_in_rounds(const std::string& folder) {
  const auto group = init_process_group();
  for (int round = 0; round < kRounds; ++round) {
    StopSignal stop(group);
    const auto step = train(group, stop, name_of(round));
    say(name_of(round) + " stopped at " + std::to_string(step) + ".");
    while (!is_there_on_all(group, told_file(folder, round))) {
    }
  }
}

/// The output between `text` and the next full stop.
std::string after(const std::string& output, const std::string& text) {
  INFO(output);
  const auto begin = output.find(text);
  REQUIRE(begin != std::string::npos);
  const auto from = begin + text.size();
  return output.substr(from, output.find('.', from) - from);
}

/// The steps at which the ranks of one launcher stopped.
std::set<std::string> stops(const std::string& output) {
  std::set<std::string> steps;
  for (int rank = 0; rank < kWorld; ++rank) {
    steps.insert(
        after(output, "rank " + std::to_string(rank) + " stopped at "));
  }
  return steps;
}

void wait_until_trained(Process& launcher) {
  for (int rank = 0; rank < kWorld; ++rank) {
    REQUIRE(
        launcher.wait_for("rank " + std::to_string(rank) + " has pid", kLong));
  }
  REQUIRE(launcher.wait_for("train step 60.", kLong));
}

std::optional<Process> start_under_mpirun(const std::string& backend) {
  auto command = command_of_rank(train_and_say, std::exit);
  if (!command) {
    return std::nullopt;
  }
  command->environment.insert({"DDP_BACKEND", backend});
  return Process(with_mpi(kWorld, *command));
}

pid_t a_child_of(pid_t parent) {
  pid_t child = 0;
  const auto tasks = "/proc/" + std::to_string(parent) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::ifstream children(task.path() / "children");
    pid_t found = 0;
    child = children >> found ? found : child;
  }
  REQUIRE(child > 0);
  return child;
}

TEST_CASE("a signal at any moment stops all ranks at one step") {
  const SharedFolder folder;
  const auto commands =
      commands_of_ranks(kWorld, [&] { train_in_rounds(folder.path); });
  if (commands.empty()) {
    return;
  }
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::vector<Process> ranks(commands.begin(), commands.end());
  const auto any_step = [&] {
    return " step " + std::to_string(random() % (kShownSteps / 20) * 20) + ".";
  };
  for (int round = 0; round < kRounds; ++round) {
    const auto name = name_of(round);
    INFO(name);
    const int signal = round / 2 % 2 == 0 ? SIGTERM : SIGUSR1;
    for (auto& rank : ranks) {
      REQUIRE(rank.wait_for(name + " step 0.", kLong));
    }
    std::vector<size_t> order{0, 1, 2};
    std::shuffle(order.begin(), order.end(), random);
    REQUIRE(ranks[order[0]].wait_for(name + any_step(), kLong));
    ranks[order[0]].signal(signal);
    if (round % 2 == 1) { // to the others too, before or after the stop
      ranks[order[1]].signal(signal);
      REQUIRE(ranks[order[0]].wait_for(name + " stopped", kLong));
      ranks[order[2]].signal(signal);
    }
    std::ofstream(told_file(folder.path, round)) << "\n";
    for (auto& rank : ranks) {
      REQUIRE(rank.wait_for(name + " stopped at ", kLong));
    }
  }
  std::vector<std::string> outputs;
  for (auto& rank : ranks) {
    outputs.push_back(output_of(rank.finish(kLong)));
  }
  for (int round = 0; round < kRounds; ++round) {
    const auto text = name_of(round) + " stopped at ";
    INFO(text);
    REQUIRE(after(outputs[1], text) == after(outputs[0], text));
    REQUIRE(after(outputs[2], text) == after(outputs[0], text));
  }
}

TEST_CASE("a signal to mpirun, or to one of its ranks, stops all at one step") {
  const auto stop = [](const std::string& backend, bool one_rank) {
    INFO(backend << (one_rank ? ", SIGTERM" : ", SIGUSR1"));
    auto mpirun = start_under_mpirun(backend);
    if (!mpirun) {
      return;
    }
    wait_until_trained(*mpirun);
    if (one_rank) {
      REQUIRE(kill(a_child_of(mpirun->pid()), SIGTERM) == 0);
    } else {
      mpirun->signal(SIGUSR1); // forwards it
    }
    REQUIRE(stops(output_of(mpirun->finish(kLong))).size() == 1);
  };
  stop("gloo", /*one_rank=*/true);
  stop("mpi", /*one_rank=*/false);
}

TEST_CASE("a group of one stops at once") {
  const ProcessGroup group;
  for (const int signal : {SIGTERM, SIGUSR1}) {
    StopSignal stop(group);
    REQUIRE_FALSE(stop.requested());
    REQUIRE_FALSE(stop.requested());
    raise(signal);
    REQUIRE(stop.requested());
    raise(signal); // the same request
    REQUIRE(stop.requested());
  }
}

TEST_CASE("a program that hangs can be ended") {
  auto commands = commands_of_ranks(1, [] {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(SIGTERM, &action, nullptr);
    const StopSignal stop{ProcessGroup()};
    say("hangs");
    for (;;) {
      pause();
    }
  });
  if (commands.empty()) {
    return;
  }
  Process process(commands[0]);
  REQUIRE(process.wait_for("hangs", kLong));
  for (int i = 0; i < 4; ++i) {
    process.signal(SIGTERM);
    process.wait_for("no such text", 1s); // returns at once if it has ended
  }
  const auto outcome = process.finish(kLong);
  REQUIRE_FALSE(outcome.hung);
  output_of(outcome, 128 + SIGTERM);
  REQUIRE(outcome.seconds.count() > 2); // not by a possible duplicate
}

RANKS_TEST("a loop may end before it is stopped", kWorld) {
  for (int i = 0; i < 3; ++i) {
    StopSignal stop(group);
    for (int step = 0; step <= i; ++step) {
      REQUIRE_FALSE(stop.requested());
    }
    group.barrier(); // no rank is late
  }
  auto sum = torch::ones({4});
  group.all_reduce(sum);
  REQUIRE(sum[0].item<float>() == kWorld);
  REQUIRE_FALSE(detail::ProcessGroupImpl::of(group).abandoned); // waited for
  // A StopSignal that no other rank reaches ends soon, also by an exception.
  for (const bool throws : {false, true}) {
    const auto start = Clock::now();
    try {
      StopSignal stop(group);
      if (group.rank() == 1) {
        stop.requested();
      }
      if (throws) {
        throw std::runtime_error("ends the loop");
      }
    } catch (const std::runtime_error&) {
    }
    REQUIRE(Clock::now() - start < 5s);
  }
}

RANKS_TEST(
    "requested() throws where a peer has ended",
    kWorld,
    {},
    RankOptions().exit_codes({{1, 3}})) {
  StopSignal stop(group);
  const auto start = Clock::now();
  const auto call = [&] {
    for (int step = 0;; ++step) {
      if (stop.requested() || (group.rank() == 1 && step == 20)) {
        _exit(3);
      }
    }
  };
  REQUIRE_THROWS_WITH(call(), Has("StopSignal::requested over gloo failed"));
  REQUIRE_THROWS_AS(stop.requested(), c10::Error);
  REQUIRE(Clock::now() - start < 20s);
}

// StopSignal and the program's own handlers of signals.

std::atomic<int> own_calls{0};
void own_handler(int /*signal*/) {
  ++own_calls;
}

/// A handler of the program, which must be restored.
struct OwnHandler {
  explicit OwnHandler(int signal) : number(signal) {
    struct sigaction action {};
    action.sa_handler = own_handler;
    sigaction(number, &action, &before);
    own_calls = 0;
  }
  ~OwnHandler() {
    sigaction(number, &before, nullptr);
  }
  int number;
  struct sigaction before {};
};

TEST_CASE("the signals are the program's choice, and its again afterwards") {
  const OwnHandler term(SIGTERM);
  {
    StopSignal stop(ProcessGroup(), {SIGUSR2, SIGHUP, SIGUSR2});
    raise(SIGTERM);
    REQUIRE(own_calls == 1);
    REQUIRE_FALSE(stop.requested());
    raise(SIGUSR2);
    REQUIRE(stop.requested());
  }
  {
    StopSignal stop{ProcessGroup()};
    REQUIRE_FALSE(stop.requested()); // the previous one is done
    raise(SIGTERM);
    REQUIRE(stop.requested());
    REQUIRE(own_calls == 1);
  }
  raise(SIGTERM);
  REQUIRE(own_calls == 2);

  std::optional<StopSignal> stop;
  stop.emplace(ProcessGroup());
  const OwnHandler newer(SIGUSR1); // replaces ours: stays
  stop.reset();
  raise(SIGUSR1);
  REQUIRE(own_calls == 1);
}

TEST_CASE("a second StopSignal, and what is no signal, are refused") {
  const OwnHandler own(SIGTERM);
  for (const int number : {0, -3, SIGKILL, SIGSTOP, 1000}) {
    REQUIRE_THROWS_AS(
        StopSignal(ProcessGroup(), {SIGTERM, number}), c10::ValueError);
    raise(SIGTERM);
    REQUIRE(own_calls-- == 1);
  }
  StopSignal stop{ProcessGroup()};
  REQUIRE_THROWS_WITH(
      StopSignal(ProcessGroup()), Has("already has a StopSignal"));
  raise(SIGTERM);
  REQUIRE(stop.requested()); // the first one still works
}

TEST_CASE("a signal that comes again later does what it did before") {
  const OwnHandler own(SIGTERM);
  StopSignal stop{ProcessGroup()};
  const auto start = Clock::now();
  while (own_calls == 0 && Clock::now() - start < 20s) {
    raise(SIGTERM);
    REQUIRE(stop.requested());
  }
  REQUIRE(own_calls == 1);
  REQUIRE(Clock::now() - start > 2s);
  raise(SIGTERM);
  REQUIRE(own_calls == 2);
}

} // namespace ddp::test::stop_signal_test
