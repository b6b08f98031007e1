// Compares, step by step in turns, a training step with ddp, one without
// communication ("local"), one with LibTorch's c10d::Reducer called from C++,
// and one with Python's DistributedDataParallel. The last two use gloo.

#include <bench/commands.h>
#include <bench/groups.h>
#include <bench/paired.h>
#include <bench/python_peer.h>
#include <bench/shared_memory.h>
#include <bench/trainer.h>

#include <map>

namespace bench {
namespace {

const std::map<std::string, Task> kTasks{
    {"mlp200", {"mlp200"}},
    {"big100", {"big100"}},
    {"resnet18", {"resnet18"}},
    {"accumulation", {"mlp200", 4}},
    {"blocks", {"blocks"}},
    {"blocks_bf16", {"blocks", 1, c10::kCPU, true}},
    {"lstm", {"lstm"}},
    {"unused", {"mlp200_unused"}}};

/// The groups and the Python process, for all cases.
struct Setting {
  ddp::ProcessGroup gloo;
  std::optional<ddp::ProcessGroup> shm;
  std::optional<PythonPeer> python;
  SpinBarrier barrier;
};

std::vector<Variant> variants_of(const Task& task, const Setting& setting) {
  std::vector<Variant> variants;
  const auto add = [&](const std::string& name, const auto& attach) {
    const auto trainer = std::make_shared<Trainer>(task);
    attach(*trainer);
    variants.push_back(timed(name, [trainer] { trainer->step(); }));
  };
  add("local", [](Trainer& /*trainer*/) {});
  if (setting.shm) {
    add("shm", [&](Trainer& trainer) { trainer.attach(*setting.shm); });
  }
  add("gloo", [&](Trainer& trainer) { trainer.attach(setting.gloo); });
  add("c10d", [&](Trainer& trainer) { trainer.attach_c10d(setting.gloo); });
  if (setting.python) {
    setting.python->tell(
        c10::str("net ", task.net, " ", task.micro_batches, " ", task.bf16));
    variants.push_back(
        {"python", [&setting] { return setting.python->tell("step"); }});
  }
  return variants;
}

/// Adds the time of a step above the local step, per parameter.
void add_cost_per_parameter(
    nlohmann::json& result,
    const Variant& subject,
    const Variant& local,
    size_t parameters) {
  std::vector<double> microseconds(local.seconds.size());
  for (size_t i = 0; i < microseconds.size(); ++i) {
    microseconds[i] = (subject.seconds[i] - local.seconds[i]) * 1e6 /
        static_cast<double>(parameters);
  }
  const auto cost = quartiles(microseconds);
  result["us_per_parameter"] = cost.median;
  result["us_per_parameter_quartiles"] = {cost.low, cost.high};
}

void measure(
    const std::string& name,
    const Task& task,
    double seconds,
    const Setting& setting) {
  auto variants = variants_of(task, setting);
  const auto rounds =
      rounds_within(seconds, variants, setting.barrier, setting.gloo);
  run_in_turns(variants, rounds, setting.barrier);
  take_slowest(variants, setting.gloo);
  if (setting.python) {
    setting.python->tell("drop");
  }
  if (setting.gloo.rank() != 0) {
    return;
  }
  const auto parameters = make_net(task.net).module->parameters().size();
  for (size_t i = 1; i < variants.size(); ++i) {
    auto result = result_of(
        name + (variants[i].name == "shm" ? "" : "_" + variants[i].name),
        variants[i],
        variants);
    if (task.net == "mlp200" && setting.gloo.size() == 1) {
      add_cost_per_parameter(result, variants[i], variants[0], parameters);
    }
    print(result);
  }
}

} // namespace

void measure_steps(const Arguments& arguments) {
  pin_to_one_cpu();
  const auto gloo = find_group("gloo").value();
  Setting setting{gloo, find_group("shm"), {}, SpinBarrier(gloo)};
  PythonPeer::start(setting.python);
  const auto size = setting.gloo.size();
  const auto suffix = size == 1 ? "_alone"
      : size == 2               ? ""
                                : c10::str("_", size, "ranks");
  for (size_t i = 1; i < arguments.size(); ++i) {
    measure(
        arguments[i] + suffix,
        kTasks.at(arguments[i]),
        std::stod(arguments[0]),
        setting);
  }
}

} // namespace bench
