// Measures all-reduces and training steps between hosts whose network is slow,
// as bench/wire.py sets them up: over each backend, in float and in bfloat16.

#include <bench/commands.h>
#include <bench/groups.h>
#include <bench/paired.h>
#include <bench/trainer.h>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <array>

namespace bench {
namespace {

struct Message {
  const char* name;
  int64_t bytes;
  int64_t rounds;
  int64_t calls; ///< in a measured run
};

constexpr std::array<Message, 3> kMessages{
    {{"4KB", 4 << 10, 9, 20},
     {"4MB", 4 << 20, 9, 1},
     {"100MB", 100 << 20, 3, 1}}};
constexpr std::array<const char*, 2> kNets{"resnet18", "big100"};
constexpr int64_t kStepRounds = 5;

struct Wire {
  std::vector<ddp::ProcessGroup> groups; // of all ranks, one for each backend
  double bytes_per_second = 0; ///< of each host, in each direction

  const ddp::ProcessGroup& any() const {
    return groups.front();
  }

  int64_t hosts() const {
    return any().size() / any().local_size();
  }

  /// The least time in which each host can send its part of an all-reduce.
  double limit(double bytes) const {
    const auto count = static_cast<double>(hosts());
    return 2 * (count - 1) / count * bytes / bytes_per_second;
  }

  std::string case_name(const std::string& rest) const {
    return c10::str(
        "wire_",
        hosts(),
        "hosts_",
        static_cast<int64_t>(bytes_per_second * 8 / 1e6),
        "Mbit_",
        rest);
  }

  void measure(std::vector<Variant>& variants, int64_t rounds) const {
    const auto barrier = [this] { any().barrier(); };
    run_in_turns(variants, 1, barrier);
    for (auto& variant : variants) {
      variant.seconds.clear();
    }
    run_in_turns(variants, rounds, barrier);
    take_slowest(variants, any());
  }
};

/// All-reduces `values` in buckets as a Reducer does; in bfloat16, as its
/// compress_hook does.
void all_reduce(
    const ddp::ProcessGroup& group,
    const at::Tensor& values,
    bool bf16) {
  constexpr int64_t kBucket = (int64_t{25} << 20) / 4;
  const auto backend = group.c10d()->getBackend(c10::kCPU);
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  std::vector<at::Tensor> sent;
  const auto buckets = values.split(kBucket);
  for (const auto& bucket : buckets) {
    std::vector<at::Tensor> tensors{bf16 ? bucket.to(at::kBFloat16) : bucket};
    works.push_back(backend->allreduce(tensors));
    sent.push_back(tensors.front());
  }
  for (size_t i = 0; i < works.size(); ++i) {
    works[i]->wait();
    if (bf16) {
      buckets[i].copy_(sent[i]);
    }
  }
}

void measure_message(const Wire& wire, const Message& size) {
  std::vector<Variant> variants;
  for (const auto& group : wire.groups) {
    for (const bool bf16 : {false, true}) {
      const auto run =
          [&group, bf16, size, values = at::zeros(size.bytes / 4)] {
            for (int64_t i = 0; i < size.calls; ++i) {
              all_reduce(group, values, bf16);
            }
          };
      variants.push_back(timed(group.backend() + (bf16 ? "_bf16" : ""), run));
    }
  }
  wire.measure(variants, size.rounds);
  if (wire.any().rank() != 0) {
    return;
  }
  for (const auto& variant : variants) {
    auto result = result_of(
        wire.case_name(variant.name + "_" + size.name), variant, variants);
    const auto seconds =
        result["seconds"].get<double>() / static_cast<double>(size.calls);
    result["seconds"] = seconds;
    result["ratio_limit"] = seconds / wire.limit(double(size.bytes));
    print(result);
  }
}

/// The share of an all-reduce's time that a step hides behind backward.
void measure_net(const Wire& wire, const std::string& net) {
  std::vector<Variant> variants;
  const auto add = [&](const std::string& name, const auto& attach) {
    const auto trainer = std::make_shared<Trainer>(Task{net});
    attach(*trainer);
    variants.push_back(timed(name, [trainer] { trainer->step(); }));
  };
  add("local", [](Trainer& /*trainer*/) {});
  int64_t count = 0;
  for (const auto& parameter : make_net(net).module->parameters()) {
    count += parameter.numel();
  }
  for (const auto& group : wire.groups) {
    if (group.backend() == "mpi") {
      continue; // waits in a busy loop, which takes the CPU from others'
                // backward
    }
    add(group.backend(), [&](Trainer& trainer) { trainer.attach(group); });
    variants.push_back(
        timed(group.backend() + "_alone", [&group, values = at::zeros(count)] {
          all_reduce(group, values, false);
        }));
  }
  wire.measure(variants, kStepRounds);
  if (wire.any().rank() != 0) {
    return;
  }
  const auto median = [](const Variant& variant) {
    return quartiles(variant.seconds).median;
  };
  for (size_t i = 1; i < variants.size(); i += 2) {
    auto result = result_of(
        wire.case_name(variants[i].name + "_step_" + net),
        variants[i],
        variants);
    result["hidden_share"] = 1 -
        (median(variants[i]) - median(variants[0])) / median(variants[i + 1]);
    print(result);
  }
}

} // namespace

void measure_wire(const Arguments& arguments) {
  Wire wire;
  wire.bytes_per_second = std::stod(arguments.at(0)) * 1e6 / 8;
  const auto last = arguments.at(1);
  for (const char* backend : {"gloo", "hierarchical", "mpi"}) {
    if (auto group = find_group(backend)) {
      wire.groups.push_back(*group);
    }
  }
  for (const auto& size : kMessages) {
    measure_message(wire, size);
    if (last == size.name) {
      return;
    }
  }
  for (const auto* net : kNets) {
    measure_net(wire, net);
  }
}

} // namespace bench
