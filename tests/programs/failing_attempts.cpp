// failing_attempts [N]: fails in its first N attempts (2), each time after an
// all-reduce of ones. Run under a launcher with restarts.

#include <ddp/process_group.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
  const int failing = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::string attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  auto group = ddp::init_process_group();
  auto ones = torch::ones({1});
  group.all_reduce(ones);
  if (group.rank() == 0) {
    std::printf("attempt %s: sum %g\n", attempt.c_str(), ones.item<double>());
    std::fflush(stdout);
  }
  group.barrier();
  return std::stoi(attempt) < failing && group.rank() == 1 ? 3 : 0;
}
