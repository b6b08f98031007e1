// Fails in its first two attempts, after the ranks have met; in the third it
// adds a one from each rank. Run by a launcher that restarts.

#include <ddp/process_group.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <string>

int main() {
  const std::string attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  auto group = ddp::init_process_group();
  if (attempt != "2" && group.rank() == 1) {
    return 3;
  }
  auto ones = torch::ones({1});
  group.all_reduce(ones);
  group.barrier();
  if (group.rank() == 0) {
    std::printf("attempt %s: sum %g\n", attempt.c_str(), ones.item<double>());
  }
  return 0;
}
