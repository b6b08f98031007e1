// Runs steps of mlp200 with a Reducer, on one rank, under callgrind, which
// writes a file with the instructions of each step: see hook_instructions.py.

#include <bench/groups.h>
#include <bench/trainer.h>

#include <ATen/Parallel.h>
#include <valgrind/callgrind.h>

int main() {
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
