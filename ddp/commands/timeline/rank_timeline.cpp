#include <ddp/commands/timeline/rank_timeline.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <stdexcept>
#include <tuple>

namespace ddp::command {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The files of ranks in a folder, or the file.
std::vector<std::string> files_of(const std::string& path) {
  if (!fs::is_directory(path)) {
    return {path};
  }
  static const std::regex form(R"(.*\.rank\d+\.json)");
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (std::regex_match(entry.path().filename().string(), form)) {
      files.push_back(entry.path().string());
    }
  }
  if (files.empty()) {
    throw std::runtime_error(
        path + ": no timeline of a rank (*.rank0.json) is in this folder");
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Reads times, and makes them rank 0's.
class StepReader {
 public:
  explicit StepReader(int64_t offset) : offset_(offset) {}

  RecordedStep step(const json& from) const {
    RecordedStep step;
    step.step = from.at("step");
    step.forward_began = time(from, "forward_began");
    step.forward_ended = time(from, "forward_ended");
    step.began = *time(from, "began");
    step.computed = time(from, "computed").value_or(step.began);
    step.finished = time(from, "finished").value_or(step.computed);
    for (const auto& entry : from.at("buckets")) {
      auto& bucket = step.buckets.emplace_back();
      bucket.bytes = entry.at("bytes");
      bucket.ready = time(entry, "ready");
      bucket.launched = time(entry, "launched");
      bucket.done = time(entry, "done");
      bucket.waiting = time(entry, "waiting");
      bucket.waited = time(entry, "waited");
    }
    return step;
  }

 private:
  std::optional<Time> time(const json& from, const char* name) const {
    const auto& value = from.at(name);
    return value.is_null() ? std::nullopt
                           : std::optional(value.get<Time>() + offset_);
  }

  int64_t offset_;
};

RankTimeline parse(const json& from) {
  if (from.at("ddp_timeline") != 1) {
    throw std::runtime_error("it is of another version of ddp");
  }
  RankTimeline timeline;
  timeline.rank = from.at("rank");
  timeline.world_size = from.at("world_size");
  timeline.host = from.at("host");
  timeline.reducer = from.at("reducer");
  if (from.contains("clock_error")) {
    timeline.clock_error = from.at("clock_error").get<int64_t>();
  }
  const StepReader reader(from.value("clock_offset", int64_t{0}));
  for (const auto& step : from.at("steps")) {
    timeline.steps.push_back(reader.step(step));
  }
  if (timeline.steps.empty()) {
    throw std::runtime_error("no step is in it");
  }
  return timeline;
}

RankTimeline read(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw std::runtime_error(
        path + ": cannot be read: " + std::strerror(errno));
  }
  try {
    return parse(json::parse(file));
  } catch (const std::exception& error) {
    throw std::runtime_error(
        path + ": not a timeline of a rank: " + error.what());
  }
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
        "; give each run a folder of its own, or remove the older files");
  }
}

} // namespace

std::vector<RankTimeline> read_timelines(
    const std::vector<std::string>& paths) {
  std::vector<RankTimeline> timelines;
  for (const auto& path : paths) {
    for (const auto& file : files_of(path)) {
      timelines.push_back(read(file));
    }
  }
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
    for (const auto& step : timeline.steps) {
      range.first = std::min(
          {range.first, step.forward_began.value_or(step.began), step.began});
      range.second = std::max(range.second, step.finished);
    }
  }
  return range;
}

std::vector<size_t> rows_for(const std::vector<std::pair<Time, Time>>& bars) {
  std::vector<Time> ends; // of each row
  std::vector<size_t> rows;
  for (const auto& [begin, end] : bars) {
    const auto free =
        std::find_if(ends.begin(), ends.end(), [first = begin](Time last) {
          return last <= first;
        });
    rows.push_back(free - ends.begin());
    if (free == ends.end()) {
      ends.push_back(end);
    } else {
      *free = end;
    }
  }
  return rows;
}

std::vector<Reduction> reductions_of(const RankTimeline& timeline) {
  std::vector<Reduction> reductions;
  std::vector<std::pair<Time, Time>> bars;
  for (const auto& step : timeline.steps) {
    for (size_t i = 0; i < step.buckets.size(); ++i) {
      const auto& bucket = step.buckets[i];
      if (bucket.launched && bucket.done) {
        reductions.push_back({&step, &bucket, i + 1, 0});
        bars.emplace_back(*bucket.launched, *bucket.done);
      }
    }
  }
  const auto rows = rows_for(bars);
  for (size_t i = 0; i < rows.size(); ++i) {
    reductions[i].row = rows[i];
  }
  return reductions;
}

} // namespace ddp::command
