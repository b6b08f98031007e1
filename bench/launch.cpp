// What a launcher costs: ddprun, torchrun and mpirun, and below them a bare
// fork and exec, in turns. Milliseconds from just before the launcher is
// started to the first line of main() of the first and the last rank, and to
// the launcher's end; its CPU time (with that of the ranks, which do nothing);
// then, while ranks wait, the memory and wake-ups of its processes, ddprun's
// store helper apart. torchrun (the one beside $DDP_PYTHON) runs 3 rounds at
// most. Run: ddp_bench_launch [rounds] [--starts-of RANKS] [--json FILE], the
// former for this number of ranks alone, and without the waiting.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bench/launch_pipes.h>
#include <bench/launchers.h>
#include <bench/process_cost.h>
#include <bench/quartiles.h>
#include <nlohmann/json.hpp>

namespace {

constexpr int kIdleSeconds = 3;
constexpr int kPatienceSeconds = 60;

/// Of one number of ranks.
struct Case {
  int ranks = 0;
  const Launcher* launcher = nullptr;
  std::map<std::string, std::vector<double>> values;
};

long long now_nanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() /
      std::chrono::nanoseconds(1);
}

[[noreturn]] void execute(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& text : command) {
    argv.push_back(const_cast<char*>(text.c_str()));
  }
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

[[noreturn]] void fork_and_wait(int ranks) {
  for (int fd = 3; fd < 64; ++fd) { // as an exec would
    close(fd);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() == 0) {
      execute({WORKER_PATH});
    }
  }
  bool all = true;
  for (int status = 0; wait(&status) > 0;) {
    all = all && status == 0;
  }
  _exit(all ? 0 : 1);
}

/// A launcher that runs.
class Running {
 public:
  Running(const Launcher& launcher, int ranks) {
    const auto command = launcher.command
        ? launcher.command(ranks)
        : std::vector<std::string>{WORKER_PATH};
    for (const std::string& argument : command) {
      command_ += " " + argument;
    }
    start_ = now_nanoseconds();
    pid_ = fork();
    if (pid_ < 0) {
      throw std::runtime_error("cannot fork");
    }
    if (pid_ == 0) {
      const int null = open("/dev/null", O_RDWR);
      for (int fd : {0, 1, 2}) {
        dup2(null, fd);
      }
      if (!launcher.command) {
        fork_and_wait(ranks);
      }
      execute(command);
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    if (pid_ > 0) {
      kill(pid_, SIGTERM);
      waitpid(pid_, nullptr, 0);
    }
  }

  double milliseconds_to(long long nanoseconds) const {
    return static_cast<double>(nanoseconds - start_) / 1e6;
  }

  pid_t pid() const {
    return pid_;
  }

  /// Throws where it has ended.
  void check() {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      refuse(status);
    }
  }

  /// Waits for its end; milliseconds of CPU time.
  double wait() {
    int status = 0;
    rusage usage{};
    wait4(pid_, &status, 0, &usage);
    pid_ = -1;
    if (status != 0) {
      refuse(status);
    }
    const auto milliseconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) * 1e3 +
          static_cast<double>(time.tv_usec) / 1e3;
    };
    return milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime);
  }

 private:
  [[noreturn]] void refuse(int status) const {
    throw std::runtime_error(
        "wait status " + std::to_string(status) + ", try by hand:" + command_);
  }

  std::string command_;
  long long start_ = 0;
  pid_t pid_ = -1;
};

StartRecord wait_for_rank(const Pipes& pipes, Running& running) {
  for (int second = 0; second < kPatienceSeconds; ++second) {
    if (const auto record = pipes.read_start(1000)) {
      return *record;
    }
    running.check();
  }
  throw std::runtime_error("a rank did not start within a minute");
}

void measure_start(Case& c, const Pipes& pipes, bool keep) {
  Running running(*c.launcher, c.ranks);
  std::vector<double> starts;
  for (int rank = 0; rank < c.ranks; ++rank) {
    starts.push_back(
        running.milliseconds_to(wait_for_rank(pipes, running).nanoseconds));
  }
  const double cpu = running.wait();
  const double total = running.milliseconds_to(now_nanoseconds());
  if (keep) {
    c.values["first_ms"].push_back(
        *std::min_element(starts.begin(), starts.end()));
    c.values["last_ms"].push_back(
        *std::max_element(starts.begin(), starts.end()));
    c.values["total_ms"].push_back(total);
    c.values["cpu_ms"].push_back(cpu);
  }
}

struct Sum {
  double peak_mib = 0;
  double share_mib = 0;
  double wake_ups = 0;
};

Sum sum_of(const std::vector<ProcessCost>& costs, bool helper) {
  Sum sum;
  for (const ProcessCost& cost : costs) {
    if ((cost.name == "ddprun-store") == helper) {
      sum.peak_mib += static_cast<double>(cost.peak_kib) / 1024;
      sum.share_mib += static_cast<double>(cost.share_kib) / 1024;
      sum.wake_ups += static_cast<double>(cost.wake_ups);
    }
  }
  return sum;
}

void measure_idle(Case& c, Pipes& pipes) {
  pipes.hold();
  Running running(*c.launcher, c.ranks);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < c.ranks; ++rank) {
    ranks.push_back(wait_for_rank(pipes, running).pid);
  }
  std::this_thread::sleep_for(std::chrono::seconds(1)); // what start-up left
  const auto before = process_costs(running.pid(), ranks);
  std::this_thread::sleep_for(std::chrono::seconds(kIdleSeconds));
  const auto after = process_costs(running.pid(), ranks);
  for (const bool helper : {false, true}) {
    const std::string prefix = helper ? "helper_" : "";
    const Sum sum = sum_of(after, helper);
    const double woken = sum.wake_ups - sum_of(before, helper).wake_ups;
    c.values[prefix + "peak_mib"].push_back(sum.peak_mib);
    c.values[prefix + "pss_mib"].push_back(sum.share_mib);
    c.values[prefix + "wake_ups_per_s"].push_back(woken / kIdleSeconds);
  }
  pipes.let_go();
  running.wait();
}

std::string median_and_quartiles(const std::vector<double>& values) {
  const auto [low, median, high] = bench::quartiles(values);
  char text[64];
  std::snprintf(text, sizeof text, "%.1f [%.1f, %.1f]", median, low, high);
  return text;
}

void print_idle(const Case& c, const std::string& prefix) {
  std::printf(
      " %8.1f %8.1f %10.1f\n",
      c.values.at(prefix + "peak_mib")[0],
      c.values.at(prefix + "pss_mib")[0],
      c.values.at(prefix + "wake_ups_per_s")[0]);
}

void print(const std::vector<Case>& cases) {
  std::printf(
      "%-10s %5s %24s %24s %24s %24s %8s %8s %10s\n",
      "launcher",
      "ranks",
      "first main() ms",
      "last main() ms",
      "end ms",
      "CPU ms",
      "peak MiB",
      "PSS MiB",
      "wake-ups/s");
  for (const Case& c : cases) {
    std::printf("%-10s %5d", c.launcher->name.c_str(), c.ranks);
    for (const char* name : {"first_ms", "last_ms", "total_ms", "cpu_ms"}) {
      std::printf(" %24s", median_and_quartiles(c.values.at(name)).c_str());
    }
    print_idle(c, "");
    if (c.values.at("helper_peak_mib")[0] > 0) {
      std::printf("%-116s", "  its store helper");
      print_idle(c, "helper_");
    }
  }
}

void write_json(const std::vector<Case>& cases, const std::string& path) {
  auto list = nlohmann::json::array();
  for (const Case& c : cases) {
    list.push_back(
        {{"launcher", c.launcher->name},
         {"ranks", c.ranks},
         {"values", c.values}});
  }
  std::ofstream file(path);
  if (!(file << list.dump(1) << std::endl)) {
    throw std::runtime_error("cannot write " + path);
  }
}

struct Options {
  int rounds = 10;
  std::vector<int> rank_counts = {1, 2, 8};
  bool idle = true;
  std::string json;
};

void run(const Options& options) {
  const int rounds = options.rounds;
  Pipes pipes;
  const auto launchers = find_launchers(rounds, pipes.folder());
  std::vector<Case> cases;
  for (const int ranks : options.rank_counts) {
    for (const Launcher& launcher : launchers) {
      cases.push_back({ranks, &launcher, {}});
    }
  }
  for (int round = -1; round < rounds; ++round) {
    for (Case& c : cases) {
      if (round < c.launcher->rounds) {
        measure_start(c, pipes, round >= 0);
      }
    }
  }
  if (options.idle) {
    for (Case& c : cases) {
      measure_idle(c, pipes);
    }
    print(cases);
  }
  if (!options.json.empty()) {
    write_json(cases, options.json);
  }
}

} // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json" && i + 1 < argc) {
      options.json = argv[++i];
    } else if (argument == "--starts-of" && i + 1 < argc) {
      options.rank_counts = {std::atoi(argv[++i])};
      options.idle = false;
    } else {
      options.rounds = std::max(1, std::atoi(argv[i]));
    }
  }
  try {
    run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddp_bench_launch: %s\n", error.what());
    return 1;
  }
  return 0;
}
