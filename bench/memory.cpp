// Measures the memory of a rank that trains big100, to compare it with a
// process that trains without communication. The peak of each rank includes
// memory that ranks share; "pss_mib", after the last step, divides it among
// them.

#include <bench/commands.h>
#include <bench/groups.h>
#include <bench/paired.h>
#include <bench/process_memory.h>
#include <bench/trainer.h>

namespace bench {

void measure_memory(const Arguments& arguments) {
  constexpr int kSteps = 5;
  const auto& way = arguments.at(0);
  pin_to_one_cpu();
  const auto group = find_group(way == "shm" ? "shm" : "gloo");
  if (!group) {
    return;
  }
  Trainer trainer(Task{"big100"});
  if (way == "c10d") {
    trainer.attach_c10d(*group);
  } else if (way != "local") {
    trainer.attach(*group);
  }
  for (int i = 0; i < kSteps; ++i) {
    trainer.step();
  }
  const auto mib = at::tensor(
      {memory_mib("status", "VmHWM:"), memory_mib("smaps_rollup", "Pss:")},
      at::kDouble);
  group->all_reduce(mib, ddp::ReduceOp::kMax);
  if (group->rank() == 0) {
    double gradient_mib = 0;
    for (const auto& parameter : trainer.net().module->parameters()) {
      gradient_mib += static_cast<double>(parameter.nbytes()) / (1 << 20);
    }
    print(
        {{"name", "memory_" + way},
         {"peak_mib", mib[0].item<double>()},
         {"pss_mib", mib[1].item<double>()},
         {"gradient_mib", gradient_mib}});
  }
}

} // namespace bench
