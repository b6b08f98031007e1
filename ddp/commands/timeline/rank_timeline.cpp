#include <ddp/commands/timeline/rank_timeline.h>

#include <ddp/commands/json_files.h>

#include <algorithm>
#include <limits>
#include <tuple>

namespace ddp::command {
namespace {

using nlohmann::json;

/// Adds a reduction to the first track in which no other reduction is running.
void add_reduction(std::vector<Track>& tracks, const Span& span) {
  const auto free =
      std::find_if(tracks.begin(), tracks.end(), [&](const Track& track) {
        return track.spans.empty() || track.spans.back().end <= span.begin;
      });
  if (free == tracks.end()) {
    tracks.push_back({"communication", {span}});
  } else {
    free->spans.push_back(span);
  }
}

/// Reads the times of steps, and converts them to rank 0's clock.
class StepReader {
 public:
  explicit StepReader(int64_t offset) : offset_(offset) {}

  void read(const json& from) {
    const int64_t step = from.at("step");
    const auto forward_began = time(from, "forward_began");
    const auto forward_ended = time(from, "forward_ended");
    if (forward_began && forward_ended) {
      compute_.spans.push_back(
          {Activity::kForward, step, *forward_began, *forward_ended});
    }
    const auto began = time(from, "began").value();
    const auto computed = time(from, "computed").value_or(began);
    compute_.spans.push_back({Activity::kBackward, step, began, computed});
    size_t number = 0;
    for (const auto& bucket : from.at("buckets")) {
      read_bucket(bucket, step, ++number);
    }
  }

  void give_to(RankTimeline& timeline) {
    timeline.tracks = std::move(communication_);
    timeline.tracks.insert(timeline.tracks.begin(), std::move(compute_));
    timeline.tracks.push_back(std::move(waits_));
    timeline.ready = std::move(ready_);
  }

 private:
  void read_bucket(const json& from, int64_t step, size_t number) {
    const int64_t bytes = from.at("bytes");
    const auto launched = time(from, "launched");
    const auto done = time(from, "done");
    const auto waiting = time(from, "waiting");
    const auto waited = time(from, "waited");
    if (const auto ready = time(from, "ready")) {
      ready_.emplace_back(number, *ready);
    }
    if (launched && done) {
      add_reduction(
          communication_,
          {Activity::kReduction, step, *launched, *done, number, bytes});
    }
    if (waiting && waited) {
      waits_.spans.push_back(
          {Activity::kWait, step, *waiting, *waited, number, bytes});
    }
  }

  std::optional<Time> time(const json& from, const char* name) const {
    const auto& value = from.at(name);
    return value.is_null() ? std::nullopt
                           : std::optional(value.get<Time>() + offset_);
  }

  int64_t offset_;
  Track compute_{"compute", {}};
  std::vector<Track> communication_{{"communication", {}}};
  Track waits_{"waits", {}};
  std::vector<std::pair<size_t, Time>> ready_;
};

RankTimeline parse(const json& from) {
  if (from.at("ddp_timeline") != 1) {
    throw std::runtime_error("the file was written by another version of ddp");
  }
  RankTimeline timeline;
  timeline.rank = from.at("rank");
  timeline.world_size = from.at("world_size");
  timeline.host = from.at("host");
  timeline.reducer = from.at("reducer");
  if (from.contains("clock_error")) {
    timeline.clock_error = from.at("clock_error").get<int64_t>();
  }
  if (from.at("steps").empty()) {
    throw std::runtime_error("it contains no step");
  }
  StepReader reader(from.value("clock_offset", int64_t{0}));
  for (const auto& step : from.at("steps")) {
    reader.read(step);
  }
  reader.give_to(timeline);
  return timeline;
}

void check_goes_with(const RankTimeline& one, const RankTimeline& other) {
  const auto name = [](const RankTimeline& timeline) {
    return timeline.reducer + ", rank " + std::to_string(timeline.rank) +
        " of " + std::to_string(timeline.world_size);
  };
  if (one.reducer != other.reducer) {
    return;
  }
  if (one.world_size != other.world_size || one.rank == other.rank) {
    throw std::runtime_error(
        "files of different runs: " + name(one) + ", and " + name(other) +
        "; use a separate folder for each run, or remove the older files");
  }
}

} // namespace

std::string Span::name() const {
  switch (activity) {
    case Activity::kForward:
      return "forward";
    case Activity::kBackward:
      return "backward";
    case Activity::kReduction:
      return "bucket " + std::to_string(bucket);
    case Activity::kWait:
      break;
  }
  return "wait for bucket " + std::to_string(bucket);
}

std::vector<RankTimeline> read_timelines(
    const std::vector<std::string>& paths) {
  std::vector<RankTimeline> timelines;
  read_json_files(
      paths,
      R"(.*\.rank\d+\.json)",
      "timeline of a rank",
      [&](const std::string& /*path*/, const json& content) {
        timelines.push_back(parse(content));
      });
  std::sort(timelines.begin(), timelines.end(), [](auto& a, auto& b) {
    return std::tie(a.rank, a.reducer) < std::tie(b.rank, b.reducer);
  });
  for (size_t i = 0; i < timelines.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      check_goes_with(timelines[k], timelines[i]);
    }
  }
  return timelines;
}

std::pair<Time, Time> range_of(const std::vector<RankTimeline>& timelines) {
  std::pair<Time, Time> range{
      std::numeric_limits<Time>::max(), std::numeric_limits<Time>::min()};
  for (const auto& timeline : timelines) {
    for (const auto& track : timeline.tracks) {
      for (const auto& span : track.spans) {
        range.first = std::min(range.first, span.begin);
        range.second = std::max(range.second, span.end);
      }
    }
  }
  return range;
}

bool are_of_several(const std::vector<RankTimeline>& timelines) {
  return std::any_of(timelines.begin(), timelines.end(), [&](const auto& one) {
    return one.reducer != timelines[0].reducer;
  });
}

} // namespace ddp::command
