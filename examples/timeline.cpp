// When one training step computes and when it communicates, as a chart.
// Run: ddprun --nproc-per-node 2 timeline step.svg
// The same of any program, without code: docs/observability.md.

#include "report_errors.h"
#include "time_chart.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

struct Arguments {
  std::string file;
  int64_t layers = 8;
  int64_t width = 1024;
  int64_t batch_size = 256; // of each rank
  double bucket_cap_mb = 8;
  int64_t steps = 20; // the last one is drawn
};

/// What one rank did in one step, in milliseconds of the host's clock.
struct Step {
  double forward = 0; // its start
  double backward = 0;
  double optimizer = 0;
  double end = 0;
  std::vector<double> gradients; // when each was computed
  struct Bucket {
    double ready, launched, done, mib;
  };
  std::vector<Bucket> buckets;
};

/// The clock is one for all processes of a host.
double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(time).count();
}

double milliseconds(std::optional<ddp::BucketTimes::Duration> time) {
  return std::chrono::duration<double, std::milli>(time.value()).count();
}

Step run(const Arguments& arguments, const ddp::ProcessGroup& group) {
  ddp::manual_seed(1, group);
  torch::nn::Sequential net;
  for (int64_t i = 0; i < arguments.layers; ++i) {
    net->push_back(torch::nn::Linear(arguments.width, arguments.width));
    net->push_back(torch::nn::ReLU());
  }
  net->to(group.device());
  Step step;
  for (auto& parameter : net->parameters()) {
    parameter.register_hook(
        [&](const torch::Tensor&) { step.gradients.push_back(now()); });
  }
  const auto options =
      ddp::ReducerOptions().bucket_cap_mb(arguments.bucket_cap_mb).record(true);
  ddp::Reducer reducer(net, group, options);
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  const auto input =
      torch::randn({arguments.batch_size, arguments.width}, group.device());

  for (int64_t i = 0; i < arguments.steps; ++i) {
    group.barrier();
    step.gradients.clear();
    optimizer.zero_grad();
    step.forward = now();
    const auto loss = net->forward(input).square().mean();
    step.backward = now();
    loss.backward();
    step.optimizer = now();
    optimizer.step();
    step.end = now();
  }
  // The Reducer's times begin with the first gradient.
  const double origin = step.gradients.front();
  for (const auto& bucket : reducer.timeline().buckets) {
    step.buckets.push_back(
        {origin + milliseconds(bucket.ready),
         origin + milliseconds(bucket.launched),
         origin + milliseconds(bucket.done),
         static_cast<double>(bucket.bytes) / (1 << 20)});
  }
  return step;
}

/// The steps of all ranks. They have as many gradients and buckets each.
std::vector<Step> all_gather(const Step& step, const ddp::ProcessGroup& group) {
  std::vector<double> times{
      step.forward, step.backward, step.optimizer, step.end};
  times.insert(times.end(), step.gradients.begin(), step.gradients.end());
  for (const auto& bucket : step.buckets) {
    times.insert(
        times.end(), {bucket.ready, bucket.launched, bucket.done, bucket.mib});
  }
  std::vector<Step> steps;
  for (const auto& of_rank :
       group.all_gather(torch::tensor(times, torch::kDouble))) {
    const auto* time = of_rank.data_ptr<double>();
    Step& each = steps.emplace_back(step);
    for (double* field :
         {&each.forward, &each.backward, &each.optimizer, &each.end}) {
      *field = *time++;
    }
    for (double& gradient : each.gradients) {
      gradient = *time++;
    }
    for (auto& bucket : each.buckets) {
      bucket = {time[0], time[1], time[2], time[3]};
      time += 4;
    }
  }
  return steps;
}

const char* const kForward = "#8fb8de";
const char* const kBackward = "#f2c078";
const char* const kWaits = "#d8d8d8";
const char* const kUpdates = "#a9d6a4";
const char* const kReduces = "#d78fa6";

void draw(const std::vector<Step>& ranks, const std::string& path) {
  double begin = ranks[0].forward;
  double end = ranks[0].end;
  for (const auto& step : ranks) {
    begin = std::min(begin, step.forward);
    end = std::max(end, step.end);
  }
  TimeChart chart(begin, end);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& step = ranks[rank];
    chart.row("rank " + std::to_string(rank));
    chart.bar(step.forward, step.backward, kForward);
    chart.bar(step.backward, step.gradients.back(), kBackward);
    chart.bar(step.gradients.back(), step.optimizer, kWaits);
    chart.bar(step.optimizer, step.end, kUpdates);
    for (const double time : step.gradients) {
      chart.mark(time);
    }
    for (size_t i = 0; i < step.buckets.size(); ++i) {
      const auto& bucket = step.buckets[i];
      std::ostringstream size;
      size.precision(2);
      size << bucket.mib << " MiB";
      chart.row("  bucket " + std::to_string(i + 1));
      chart.bar(bucket.launched, bucket.done, kReduces, size.str());
      chart.mark(bucket.ready);
    }
  }
  chart.legend(
      {{"forward", kForward},
       {"backward (a line for each gradient)", kBackward},
       {"waits", kWaits},
       {"optimizer", kUpdates},
       {"a bucket is reduced (line: it was full)", kReduces}});
  chart.write(path);
}

/// How much of the time in which buckets were being reduced rank 0 computed.
void print_summary(const Step& step) {
  const double computed = step.gradients.back();
  double first = step.buckets.front().launched;
  double last = first;
  for (const auto& bucket : step.buckets) {
    last = std::max(last, bucket.done);
  }
  std::printf(
      "step %.1f ms: forward %.1f, backward computes %.1f, waits %.1f; "
      "%zu buckets reduced in %.1f ms, of which %.0f %% while it computed\n",
      step.end - step.forward,
      step.backward - step.forward,
      computed - step.backward,
      step.optimizer - computed,
      step.buckets.size(),
      last - first,
      100 * (std::min(computed, last) - first) / (last - first));
}

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("When a step computes and when it communicates.");
  app.add_option("file", arguments.file, "the picture, .svg")->required();
  app.add_option("--layers", arguments.layers)->check(CLI::PositiveNumber);
  app.add_option("--width", arguments.width)->check(CLI::PositiveNumber);
  app.add_option("--batch-size", arguments.batch_size, "of each rank")
      ->check(CLI::PositiveNumber);
  app.add_option("--bucket-cap-mb", arguments.bucket_cap_mb)
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", arguments.steps, "the last one is drawn")
      ->check(CLI::Range(3, 1000000));
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] {
    auto group = ddp::init_process_group();
    TORCH_CHECK_VALUE(
        group.size() > 1, "a group of one reduces nothing; start 2 or more");
    TORCH_CHECK_VALUE(
        group.device().is_cpu(),
        "the clock of the host does not see what a GPU does; set "
        "DDP_DEVICE=cpu");
    if (group.rank() == 0) { // better now than after the steps
      const std::ofstream file(arguments.file, std::ios::app);
      TORCH_CHECK(
          file, "cannot write ", arguments.file, ": ", std::strerror(errno));
    }
    const auto steps = all_gather(run(arguments, group), group);
    if (group.rank() == 0) {
      draw(steps, arguments.file);
      print_summary(steps[0]);
    }
  });
}
