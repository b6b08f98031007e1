#include <ddp/commands/timeline/picture.h>
#include <ddp/commands/timeline/rank_timeline.h>

#include <ddp/commands/program.h>

#include <nlohmann/json.hpp>

#include <fstream>
#include <ostream>
#include <set>
#include <stdexcept>

namespace ddp::command {
namespace {

using nlohmann::json;

/// From `begin` on.
double microseconds(Time begin, Time time) {
  return static_cast<double>(time - begin) / 1e3;
}

json metadata(int64_t rank, const char* name, const json& arguments) {
  return {{"ph", "M"}, {"name", name}, {"pid", rank}, {"args", arguments}};
}

/// Names track `number` of a rank, and gives it its place.
void add_track(json& events, int64_t rank, int64_t number, std::string name) {
  for (auto event :
       {metadata(rank, "thread_name", {{"name", std::move(name)}}),
        metadata(rank, "thread_sort_index", {{"sort_index", number}})}) {
    event["tid"] = number;
    events.push_back(event);
  }
}

json event_of(const Span& span, Time begin) {
  json arguments{{"step", span.step}};
  if (span.activity == Activity::kReduction) {
    arguments["bytes"] = span.bytes;
  }
  return {
      {"ph", "X"},
      {"name", span.name()},
      {"ts", microseconds(begin, span.begin)},
      {"dur", microseconds(span.begin, span.end)},
      {"args", arguments}};
}

/// Of a track.
std::vector<json> events_of(
    const RankTimeline& timeline,
    const Track& track,
    Time begin) {
  std::vector<json> events;
  for (const auto& span : track.spans) {
    events.push_back(event_of(span, begin));
  }
  if (&track == &timeline.tracks.front()) {
    for (const auto& [bucket, time] : timeline.ready) {
      events.push_back(
          {{"ph", "i"},
           {"s", "t"},
           {"name", "bucket " + std::to_string(bucket) + " is ready"},
           {"ts", microseconds(begin, time)}});
    }
  }
  return events;
}

json events_of(const std::vector<RankTimeline>& timelines) {
  auto events = json::array();
  const auto begin = range_of(timelines).first;
  const bool several = are_of_several(timelines);
  int64_t number = 0;
  int64_t last_rank = -1;
  for (const auto& timeline : timelines) {
    const auto rank = timeline.rank;
    if (rank != last_rank) {
      number = 0;
      last_rank = rank;
      const auto name =
          "rank " + std::to_string(rank) + " (" + timeline.host + ")";
      events.push_back(metadata(rank, "process_name", {{"name", name}}));
    }
    const auto suffix = several ? " (" + timeline.reducer + ")" : "";
    for (const auto& track : timeline.tracks) {
      add_track(events, rank, ++number, track.name + suffix);
      for (auto& event : events_of(timeline, track, begin)) {
        event["pid"] = rank;
        event["tid"] = number;
        events.push_back(std::move(event));
      }
    }
  }
  return events;
}

/// Writes a trace for Perfetto and chrome://tracing: a process for each rank,
/// with tracks for computation, communication and waits. Source: the Trace
/// Event Format, as an array of events; times are microseconds from the first
/// on.
void write_trace(
    std::ostream& out,
    const std::vector<RankTimeline>& timelines) {
  const auto* separator = "[\n";
  for (const auto& event : events_of(timelines)) {
    out << separator
        << event.dump(-1, ' ', true, json::error_handler_t::replace);
    separator = ",\n";
  }
  out << "\n]\n";
}

constexpr const char* kProgram = "ddp-timeline";

using Writer = void (*)(std::ostream&, const std::vector<RankTimeline>&);

void write_file(
    const std::string& path,
    const std::vector<RankTimeline>& timelines,
    Writer writer) {
  std::ofstream file(path);
  writer(file, timelines);
  file.close();
  if (!file) {
    throw std::runtime_error(path + ": cannot be written");
  }
}

/// What a reader of the picture had better know.
void say_gaps(const std::vector<RankTimeline>& timelines) {
  std::set<int64_t> ranks;
  for (const auto& timeline : timelines) {
    ranks.insert(timeline.rank);
    if (!timeline.clock_error && timeline.world_size > 1) {
      say(kProgram,
          "note: rank " + std::to_string(timeline.rank) +
              "'s clock was not compared with rank 0's");
    }
  }
  const auto size = static_cast<size_t>(timelines[0].world_size);
  if (ranks.size() < size) {
    say(kProgram,
        "note: files of " + std::to_string(ranks.size()) + " of " +
            std::to_string(size) + " ranks");
  }
}

int run(int argc, char** argv) {
  CLI::App app{
      "Merges the recorded steps of all ranks, with their clocks aligned.",
      kProgram};
  std::vector<std::string> paths;
  std::string trace;
  std::string picture;
  app.set_version_flag("--version", "ddp-timeline " DDP_VERSION);
  app.add_option("files", paths, "Files of ranks, or folders of them")
      ->required();
  app.add_option(
      "-o,--output",
      trace,
      "File for a trace for Perfetto (https://ui.perfetto.dev) and "
      "chrome://tracing");
  app.add_option("--svg", picture, "File for a picture");
  app.footer(
      "Ranks write the steps DDP_TIMELINE_STEPS (such as 10-12) to the "
      "folder\nDDP_TIMELINE. Without -o and --svg, the trace is written to "
      "standard output.");
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  const auto timelines = read_timelines(paths);
  say_gaps(timelines);
  if (!trace.empty()) {
    write_file(trace, timelines, write_trace);
  }
  if (!picture.empty()) {
    write_file(picture, timelines, write_picture);
  }
  if (trace.empty() && picture.empty()) {
    write_trace(std::cout, timelines);
  }
  return 0;
}

} // namespace
} // namespace ddp::command

int main(int argc, char** argv) {
  return ddp::command::run_program(
      ddp::command::kProgram, ddp::command::run, argc, argv);
}
