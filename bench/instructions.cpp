// Runs steps of mlp200 with a Reducer, on one rank, under callgrind, which
// writes a file with the instructions of each step: see hook_instructions.py.

#include <bench/groups.h>
#include <bench/trainer.h>

#include <ATen/Parallel.h>
#include <torch/version.h>
#include <valgrind/callgrind.h>

#include <cstdio>

int main() {
#if defined(__clang__)
  std::printf("clang %d", __clang_major__);
#else
  std::printf("GCC %d", __GNUC__);
#endif
  std::printf(", LibTorch %d.%d\n", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR);
  constexpr int kWarmUpSteps = 10; // in which buckets are rebuilt, and timed
  constexpr int kSteps = 5;
  at::set_num_threads(1);
  const auto group = bench::find_group("gloo");
  bench::Trainer trainer(bench::Task{"mlp200"});
  trainer.attach(group.value());
  for (int i = 0; i < kWarmUpSteps; ++i) {
    trainer.step();
  }
  CALLGRIND_START_INSTRUMENTATION;
  for (int i = 0; i < kSteps; ++i) {
    CALLGRIND_ZERO_STATS;
    trainer.step();
    CALLGRIND_DUMP_STATS;
  }
  return 0;
}
