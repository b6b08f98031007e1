// Records training steps for the simulator bench/scaling: when each gradient
// was computed, how long a step takes with and without communication, in turns,
// and how long all-reduces of two sizes take. Rank 0 prints JSON; all times are
// milliseconds.
// Run: ddp_step_trace [layers [width [batch [bucket_cap_mb [steps]]]]], as any
// rank of a job.

#include <bench/quartiles.h>
#include <ddp/ddp.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

namespace {

using Json = nlohmann::ordered_json;

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(time).count();
}

double median(const std::vector<double>& values) {
  return bench::quartiles(values).median;
}

struct Arguments {
  int64_t layers;
  int64_t width;
  int64_t batch_size;
  double bucket_cap_mb;
  int64_t steps;
};

class Recorder {
 public:
  Recorder(const Arguments& arguments, const ddp::ProcessGroup& group)
      : group_(group),
        input_(torch::randn({arguments.batch_size, arguments.width})) {
    for (int64_t i = 0; i < arguments.layers; ++i) {
      net_->push_back(torch::nn::Linear(arguments.width, arguments.width));
      net_->push_back(torch::nn::ReLU());
    }
    const auto options = ddp::ReducerOptions()
                             .bucket_cap_mb(arguments.bucket_cap_mb)
                             .record(true);
    reducer_.emplace(net_, group, options);
    optimizer_ =
        std::make_unique<torch::optim::SGD>(net_->parameters(), /*lr=*/1e-3);
    for (const auto& parameter : net_->parameters()) {
      const auto bytes = static_cast<int64_t>(parameter.nbytes());
      const size_t slot = ready_.size();
      bytes_.push_back(bytes);
      ready_.emplace_back();
      parameter.register_hook([this, slot](const at::Tensor&) {
        ready_[slot].push_back(now() - backward_);
      });
    }
  }

  /// One step; `synced`: with communication.
  void step(bool synced) {
    std::optional<ddp::Reducer::NoSyncGuard> guard;
    if (!synced) {
      guard.emplace(reducer_->no_sync());
    }
    group_.barrier();
    optimizer_->zero_grad();
    const double start = now();
    const auto loss = net_->forward(input_).square().mean();
    backward_ = now();
    loss.backward();
    const double update = now();
    optimizer_->step();
    const double end = now();
    if (synced) {
      synced_.push_back(end - start);
      for (auto& times : ready_) {
        times.pop_back(); // only steps without communication count
      }
      return;
    }
    forward_.push_back(backward_ - start);
    compute_.push_back(update - start);
    optimizer_times_.push_back(end - update);
  }

  /// Discards the times so far.
  void clear() {
    for (auto* times : {&synced_, &forward_, &compute_, &optimizer_times_}) {
      times->clear();
    }
    for (auto& times : ready_) {
      times.clear();
    }
  }

  Json all_reduce(int64_t bytes, int64_t count) {
    auto tensor = torch::zeros({bytes / 4});
    std::vector<double> times;
    for (int64_t i = 0; i < count; ++i) {
      group_.barrier();
      const double start = now();
      group_.all_reduce(tensor);
      times.push_back(now() - start);
    }
    return {{"bytes", bytes}, {"ms", median(times)}};
  }

  Json json() const {
    Json gradients;
    for (size_t i = 0; i < bytes_.size(); ++i) {
      gradients.push_back({{"bytes", bytes_[i]}, {"ready", median(ready_[i])}});
    }
    std::stable_sort(
        gradients.begin(), gradients.end(), [](const Json& a, const Json& b) {
          return a["ready"].get<double>() < b["ready"].get<double>();
        });
    Json buckets;
    for (const auto& bucket : reducer_->timeline().buckets) {
      buckets.push_back(bucket.bytes);
    }
    return {
        {"ranks", group_.size()},
        {"backend", group_.backend()},
        {"forward", median(forward_)},
        {"optimizer", median(optimizer_times_)},
        {"gradients", gradients},
        {"buckets", buckets},
        {"compute_steps", compute_},
        {"synced_steps", synced_}};
  }

 private:
  ddp::ProcessGroup group_;
  at::Tensor input_;
  torch::nn::Sequential net_;
  std::optional<ddp::Reducer> reducer_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  std::vector<int64_t> bytes_;
  std::vector<std::vector<double>> ready_; // of each parameter, by step
  double backward_ = 0; // when it began
  std::vector<double> synced_, forward_, compute_, optimizer_times_;
};

} // namespace

int main(int argc, char** argv) {
  const auto integer = [&](int index, const char* otherwise) {
    return std::atoll(index < argc ? argv[index] : otherwise);
  };
  const Arguments arguments{
      integer(1, "12"),
      integer(2, "1024"),
      integer(3, "64"),
      std::atof(argc > 4 ? argv[4] : "8"),
      integer(5, "15")};
  const auto group = ddp::init_process_group();
  ddp::manual_seed(1, group);
  Recorder recorder(arguments, group);
  const auto run = [&](int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
      recorder.step(/*synced=*/true);
      recorder.step(/*synced=*/false);
    }
  };
  run(/*steps=*/3); // the buckets are rebuilt in the first steps
  recorder.clear();
  run(arguments.steps);
  const auto small = recorder.all_reduce(/*bytes=*/4096, /*count=*/50);
  const auto large = recorder.all_reduce(/*bytes=*/8 << 20, /*count=*/5);
  if (group.rank() == 0) {
    auto json = recorder.json();
    json["all_reduce"] = {small, large};
    std::printf("%s\n", json.dump(1).c_str());
  }
}
