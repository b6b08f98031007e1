#include <ddp/commands/timeline/trace.h>

#include <nlohmann/json.hpp>

namespace ddp::command {
namespace {

using nlohmann::json;

/// The time since `begin`.
double microseconds(Time begin, Time time) {
  return static_cast<double>(time - begin) / 1e3;
}

json metadata(int64_t rank, const char* name, const json& arguments) {
  return {{"ph", "M"}, {"name", name}, {"pid", rank}, {"args", arguments}};
}

/// Adds the name and the position of track `number` of a rank.
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

/// The events of one track.
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

} // namespace

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

} // namespace ddp::command
