// Steps of mlp200 alone and with a Reducer, in turns, one rank. For callgrind,
// which leaves a file with the instructions of each: see hook_instructions.py.

#include <bench/groups.h>
#include <bench/trainer.h>

#include <ATen/Parallel.h>
#include <valgrind/callgrind.h>

int main() {
  constexpr int kWarmUpSteps = 5; // buckets are rebuilt meanwhile
  constexpr int kSteps = 5;
  at::set_num_threads(1);
  const auto group = bench::find_group("gloo");
  bench::Trainer local(bench::Task{"mlp200"});
  bench::Trainer reduced(bench::Task{"mlp200"});
  reduced.attach(group.value());
  for (int i = 0; i < kWarmUpSteps; ++i) {
    local.step();
    reduced.step();
  }
  CALLGRIND_START_INSTRUMENTATION;
  for (int i = 0; i < kSteps; ++i) {
    for (auto* trainer : {&local, &reduced}) {
      CALLGRIND_ZERO_STATS;
      trainer->step();
      CALLGRIND_DUMP_STATS;
    }
  }
  return 0;
}
