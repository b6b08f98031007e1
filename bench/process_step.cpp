// Times the step of a process that trains only one net: the cost of a loop's
// memory depends on the other allocations of the process.

#include <bench/commands.h>
#include <bench/groups.h>
#include <bench/paired.h>
#include <bench/trainer.h>

namespace bench {

void measure_process_step(const Arguments& arguments) {
  constexpr int kWarmUp = 5;
  constexpr int kSteps = 15;
  pin_to_one_cpu();
  const auto group = ddp::init_process_group();
  Trainer trainer(Task{arguments.at(0)});
  if (arguments.at(1) == "ddp") {
    trainer.attach(group);
  }
  std::vector<double> seconds;
  for (int i = -kWarmUp; i < kSteps; ++i) {
    const double took = seconds_of([&] { trainer.step(); });
    if (i >= 0) {
      seconds.push_back(took);
    }
  }
  print({{"seconds", quartiles(seconds).median}});
}

} // namespace bench
