// A training step with ddp, against the same without communication ("local"),
// with LibTorch's c10d::Reducer driven from C++, and with Python's
// DistributedDataParallel; the last two over gloo. Step by step in turns.

#include <bench/commands.h>
#include <bench/groups.h>
#include <bench/paired.h>
#include <bench/python_peer.h>
#include <bench/shared_memory.h>
#include <bench/trainer.h>

#include <cstdio>
#include <map>

namespace bench {
namespace {

const std::map<std::string, Task> kTasks{
    {"mlp200", {"mlp200"}},
    {"big100", {"big100"}},
    {"resnet18", {"resnet18"}},
    {"accumulation", {"mlp200", 4}},
    {"unused", {"mlp200_unused"}}};

/// Who takes part, for all cases.
struct Setting {
  ddp::ProcessGroup gloo;
  std::optional<ddp::ProcessGroup> shm;
  std::optional<PythonPeer> python;
  std::optional<StartLine> start_line;

  void meet() const {
    start_line->meet();
  }
};

Way way_of(const std::string& name, std::shared_ptr<Trainer> trainer) {
  return {
      name,
      [trainer = std::move(trainer)] {
        return seconds_of([&] { trainer->step(); });
      },
      {}};
}

std::vector<Way> ways_of(const Task& task, const Setting& setting) {
  std::vector<Way> ways{way_of("local", std::make_shared<Trainer>(task))};
  const auto add = [&](const char* name, const ddp::ProcessGroup& group) {
    auto trainer = std::make_shared<Trainer>(task);
    trainer->attach(group);
    ways.push_back(way_of(name, std::move(trainer)));
  };
  if (setting.shm) {
    add("shm", *setting.shm);
  }
  add("gloo", setting.gloo);
  auto trainer = std::make_shared<Trainer>(task);
  trainer->attach_c10d(setting.gloo);
  ways.push_back(way_of("c10d", std::move(trainer)));
  if (setting.python) {
    setting.python->tell(
        "net " + task.net + " " + std::to_string(task.micro_batches));
    ways.push_back(
        {"python", [&setting] { return setting.python->tell("step"); }, {}});
  }
  return ways;
}

/// What a step takes above the local one, for each parameter.
void add_cost_per_parameter(
    nlohmann::json& result,
    const Way& subject,
    const Way& local,
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
  auto ways = ways_of(task, setting);
  const auto meet = [&] { setting.meet(); };
  const auto rounds = rounds_within(seconds, ways, meet, setting.gloo);
  run_in_turns(ways, rounds, meet);
  take_slowest(ways, setting.gloo);
  if (setting.python) {
    setting.python->tell("drop");
  }
  if (setting.gloo.rank() != 0) {
    return;
  }
  const auto parameters = make_net(task.net).module->parameters().size();
  for (size_t i = 1; i < ways.size(); ++i) {
    auto result = result_of(
        name + (ways[i].name == "shm" ? "" : "_" + ways[i].name),
        ways[i],
        ways);
    if (task.net == "mlp200" && setting.gloo.size() == 1) {
      add_cost_per_parameter(result, ways[i], ways[0], parameters);
    }
    print(result);
  }
}

} // namespace

void measure_steps(const Arguments& arguments) {
  pin_to_one_cpu();
  Setting setting{find_group("gloo").value(), find_group("shm"), {}, {}};
  setting.start_line.emplace(setting.gloo);
  if (PythonPeer::available()) {
    setting.python.emplace();
  } else if (setting.gloo.rank() == 0) {
    std::printf("no Python: DDP_PYTHON is not set\n");
  }
  const std::string suffix = setting.gloo.size() == 1 ? "_alone" : "";
  for (size_t i = 1; i < arguments.size(); ++i) {
    measure(
        arguments[i] + suffix,
        kTasks.at(arguments[i]),
        std::stod(arguments[0]),
        setting);
  }
}

} // namespace bench
