#include <ddp/reducer/observers/timeline_file.h>

#include <common/host_name.h>
#include <ddp/environment/environment.h>
#include <ddp/internal/check.h>
#include <ddp/support/atomic_file.h>
#include <ddp/support/error_text.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <filesystem>

namespace ddp::detail {
namespace {

using nlohmann::json;
using Clock = Recorder::Clock;
using Duration = BucketTimes::Duration;

constexpr const char* kDefaultSteps = "10-12";
constexpr int kSyncPoints = 50;

int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<Duration>(time.time_since_epoch()).count();
}

/// A time that was not recorded is null.
json to_json(Clock::time_point began, const std::optional<Duration>& time) {
  return time ? json(nanoseconds(began + *time)) : json();
}

json to_json(const BucketTimes& bucket, Clock::time_point began) {
  // A bucket after its wait is done, even if the callback that records this has
  // not run yet.
  return {
      {"bytes", bucket.bytes},
      {"ready", to_json(began, bucket.ready)},
      {"launched", to_json(began, bucket.launched)},
      {"done", to_json(began, bucket.done ? bucket.done : bucket.waited)},
      {"waiting", to_json(began, bucket.waiting)},
      {"waited", to_json(began, bucket.waited)}};
}

json to_json(const Timeline& timeline, Clock::time_point began) {
  auto buckets = json::array();
  for (const auto& bucket : timeline.buckets) {
    buckets.push_back(to_json(bucket, began));
  }
  return {
      {"step", timeline.step},
      {"forward_began", to_json(began, timeline.forward_began)},
      {"forward_ended", to_json(began, timeline.forward_ended)},
      {"began", nanoseconds(began)},
      {"computed", to_json(began, timeline.computed)},
      {"finished", to_json(began, timeline.finished)},
      {"buckets", buckets}};
}

std::optional<int64_t> to_step(const std::string& text) {
  int64_t step = 0;
  const auto* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, step);
  return error == std::errc() && stop == end ? std::optional(step)
                                             : std::nullopt;
}

/// The name as a part of a file's name.
std::string plain(std::string name) {
  name.erase(0, name.find_first_not_of('/'));
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

} // namespace

ClockOffset clock_offset(
    const std::vector<SyncPoint>& first,
    const std::vector<SyncPoint>& own) {
  int64_t least = first[0].first - own[0].second;
  int64_t most = first[0].second - own[0].first;
  for (size_t i = 1; i < own.size(); ++i) {
    least = std::max(least, first[i].first - own[i].second);
    most = std::min(most, first[i].second - own[i].first);
  }
  const int64_t error = (most - least + 1) / 2;
  return {Duration(least + error), Duration(error)};
}

StepRange parse_steps(const std::string& text) {
  const auto dash = text.find('-');
  const auto first = to_step(text.substr(0, dash));
  const auto last =
      dash == std::string::npos ? first : to_step(text.substr(dash + 1));
  DDP_CHECK_VALUE(
      first && last && 1 <= *first && *first <= *last,
      "timeline_steps or DDP_TIMELINE_STEPS is '{}': expected a step, counted "
      "from 1, or the first and the last, as in 10-12",
      text);
  return {*first, *last};
}

ReducerOptions with_timeline_variables(ReducerOptions options) {
  const auto lookup = process_environment();
  if (options.timeline_folder().empty()) {
    options.timeline_folder(lookup("DDP_TIMELINE").value_or(""));
  }
  if (options.timeline_steps().empty()) {
    options.timeline_steps(
        lookup("DDP_TIMELINE_STEPS").value_or(kDefaultSteps));
  }
  if (options.timeline_steps().empty()) {
    options.timeline_folder(""); // switched off
  }
  return options;
}

TimelineFile::TimelineFile(
    const ReducerOptions& options,
    const std::string& reducer,
    const ProcessGroup& group,
    Recorder& recorder,
    const CaptureCheck& capture)
    : folder_(std::filesystem::absolute(options.timeline_folder())),
      steps_(parse_steps(options.timeline_steps())),
      reducer_(plain(reducer)),
      group_(group),
      recorder_(recorder),
      capture_(capture) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  DDP_CHECK_VALUE(
      !error,
      "timeline_folder or DDP_TIMELINE: cannot create {}: {}",
      folder_,
      error.message());
  recorder_.choose(steps_);
}

void TimelineFile::on_end(const Reduction& reduction) {
  if (!steps_.contains(reduction.step)) {
    return;
  }
  recorded_.emplace_back(recorder_.timeline(), recorder_.began());
  if (!clock_ && !capture_.is_capturing()) {
    measure_clock();
  }
  if (reduction.step == steps_.last) {
    write();
  }
}

void TimelineFile::measure_clock() {
  const auto token = at::zeros({1});
  auto times = at::empty({kSyncPoints, 2}, at::kLong);
  auto* next = times.mutable_data_ptr<int64_t>();
  for (int i = 0; i < kSyncPoints; ++i) {
    *next++ = nanoseconds(Clock::now());
    group_.all_reduce(token);
    *next++ = nanoseconds(Clock::now());
  }
  const auto all = group_.all_gather(times);
  const auto sync_points = [&](size_t rank) {
    const auto* values = all[rank].const_data_ptr<int64_t>();
    std::vector<SyncPoint> result;
    for (int i = 0; i < kSyncPoints; ++i) {
      result.emplace_back(values[2 * i], values[2 * i + 1]);
    }
    return result;
  };
  clock_ = group_.rank() == 0
      ? ClockOffset()
      : clock_offset(sync_points(0), sync_points(group_.rank()));
}

void TimelineFile::write() {
  if (recorded_.empty()) {
    return;
  }
  auto steps = json::array();
  for (const auto& [timeline, began] : std::exchange(recorded_, {})) {
    steps.push_back(to_json(timeline, began));
  }
  json content{
      {"ddp_timeline", 1},
      {"rank", group_.rank()},
      {"world_size", group_.size()},
      {"host", host_name()},
      {"reducer", reducer_},
      {"steps", steps}};
  if (clock_) {
    content["clock_offset"] = clock_->offset.count();
    content["clock_error"] = clock_->error.count();
  }
  const auto path = folder_ + "/" + reducer_ + ".rank" +
      std::to_string(group_.rank()) + ".json";
  try {
    const auto text =
        content.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
    AtomicFile file(path);
    file.write(text.data(), text.size());
    file.commit();
  } catch (const std::exception& error) {
    TORCH_WARN("the timeline is lost: ", error_text(error));
  }
}

} // namespace ddp::detail
