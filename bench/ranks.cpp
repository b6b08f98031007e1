// Measures many ranks on one host: forming a group, constructing a Reducer, and
// a step of a small net. The ranks are forks of one process, so the times
// include neither their start nor the loading of libraries.

#include <bench/commands.h>
#include <bench/paired.h>
#include <bench/process_memory.h>

#include <ddp/process_group.h>
#include <ddp/reducer.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include <sys/wait.h>
#include <unistd.h>

namespace bench {
namespace {

constexpr int kWarmUp = 3;
constexpr int kSteps = 20;

double count_entries(const char* folder) {
  return static_cast<double>(std::distance(
      std::filesystem::directory_iterator(folder),
      std::filesystem::directory_iterator()));
}

/// Prints the maximum of each figure over the ranks.
void be_a_rank(const std::string& backend) {
  std::optional<ddp::ProcessGroup> group;
  const double forming = seconds_of([&] {
    group = ddp::init_process_group(
        ddp::ProcessGroupOptions().backend(backend).device(at::kCPU));
  });
  const auto input = torch::full({8, 64}, 1.0 + group->rank());
  torch::nn::Linear net(64, 64);
  std::optional<ddp::Reducer> reducer;
  const double constructing = seconds_of([&] { reducer.emplace(net, *group); });
  const auto train = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      net->forward(input).sum().backward();
    }
  };
  train(kWarmUp);
  group->barrier();
  const double steps = seconds_of([&] { train(kSteps); });
  const auto most = at::tensor(
      {forming,
       constructing,
       steps / kSteps,
       memory_mib("smaps_rollup", "Pss:"),
       count_entries("/proc/self/task"),
       count_entries("/proc/self/fd")},
      at::kDouble);
  group->all_reduce(most, ddp::ReduceOp::kMax);
  if (group->rank() == 0) {
    print(
        {{"name", c10::str("ranks_", group->size(), "_", backend)},
         {"seconds", most[2].item<double>()},
         {"form_ms", most[0].item<double>() * 1e3},
         {"reducer_ms", most[1].item<double>() * 1e3},
         {"pss_mib", most[3].item<double>()},
         {"threads", most[4].item<double>()},
         {"descriptors", most[5].item<double>()}});
  }
  reducer.reset();
  group->shutdown();
}

/// The forks begin together, when this process closes its end of `gate`.
pid_t fork_rank(int rank, const int (&gate)[2], const std::string& backend) {
  const pid_t child = fork();
  TORCH_CHECK(child >= 0, "cannot fork rank ", rank);
  if (child == 0) {
    close(gate[1]);
    char byte = 0;
    (void)!read(gate[0], &byte, 1); // until its end
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
    try {
      be_a_rank(backend);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      _exit(1);
    }
    _exit(0);
  }
  return child;
}

} // namespace

void measure_ranks(const Arguments& arguments) {
  const int size = std::stoi(arguments.at(0));
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) {
    setenv(name, arguments[0].c_str(), 1);
  }
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", arguments.at(2).c_str(), 1);
  int gate[2];
  TORCH_CHECK(pipe(gate) == 0, "cannot create a pipe");
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(fork_rank(rank, gate, arguments.at(1)));
  }
  close(gate[1]);
  bool all_passed = true;
  for (const pid_t rank : ranks) {
    int status = 0;
    waitpid(rank, &status, 0);
    all_passed = all_passed && status == 0;
  }
  TORCH_CHECK(all_passed, "a rank failed");
}

} // namespace bench
