#include <ddp/commands/timeline/trace.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

namespace ddp::command {
namespace {

using nlohmann::json;

/// The events of one Reducer of one rank.
class Events {
 public:
  /// `first_track`: the first number for its tracks.
  Events(
      json& events,
      const RankTimeline& timeline,
      Time begin,
      int64_t first_track)
      : events_(events),
        timeline_(timeline),
        begin_(begin),
        track_(first_track) {}

  /// Returns the first number that is free.
  int64_t add(const std::string& suffix) {
    name_track("compute" + suffix);
    for (const auto& step : timeline_.steps) {
      add_compute(step);
    }
    ++track_;
    const auto reductions = reductions_of(timeline_);
    size_t rows = 1;
    for (const auto& reduction : reductions) {
      rows = std::max(rows, reduction.row + 1);
    }
    for (size_t row = 0; row < rows; ++row, ++track_) {
      name_track("communication" + suffix);
      for (const auto& reduction : reductions) {
        if (reduction.row == row) {
          add_reduction(reduction);
        }
      }
    }
    name_track("waits" + suffix);
    for (const auto& step : timeline_.steps) {
      add_waits(step);
    }
    return track_ + 1;
  }

 private:
  void name_track(const std::string& name) {
    events_.push_back(
        {{"ph", "M"},
         {"name", "thread_name"},
         {"pid", timeline_.rank},
         {"tid", track_},
         {"args", {{"name", name}}}});
    events_.push_back(
        {{"ph", "M"},
         {"name", "thread_sort_index"},
         {"pid", timeline_.rank},
         {"tid", track_},
         {"args", {{"sort_index", track_}}}});
  }

  double microseconds(Time time) const {
    return static_cast<double>(time) / 1e3;
  }

  void add_span(
      const std::string& name,
      Time begin,
      Time end,
      const RecordedStep& step,
      json arguments = json::object()) {
    arguments["step"] = step.step;
    events_.push_back(
        {{"ph", "X"},
         {"name", name},
         {"pid", timeline_.rank},
         {"tid", track_},
         {"ts", microseconds(begin - begin_)},
         {"dur", microseconds(end - begin)},
         {"args", arguments}});
  }

  void add_compute(const RecordedStep& step) {
    if (step.forward_began && step.forward_ended) {
      add_span("forward", *step.forward_began, *step.forward_ended, step);
    }
    add_span("backward", step.began, step.computed, step);
    for (size_t i = 0; i < step.buckets.size(); ++i) {
      if (step.buckets[i].ready) {
        events_.push_back(
            {{"ph", "i"},
             {"s", "t"},
             {"name", "bucket " + std::to_string(i + 1) + " is ready"},
             {"pid", timeline_.rank},
             {"tid", track_},
             {"ts", microseconds(*step.buckets[i].ready - begin_)}});
      }
    }
  }

  void add_reduction(const Reduction& reduction) {
    const auto& bucket = *reduction.bucket;
    add_span(
        "bucket " + std::to_string(reduction.number),
        *bucket.launched,
        *bucket.done,
        *reduction.step,
        {{"bytes", bucket.bytes}});
  }

  void add_waits(const RecordedStep& step) {
    for (size_t i = 0; i < step.buckets.size(); ++i) {
      const auto& bucket = step.buckets[i];
      if (bucket.waiting && bucket.waited) {
        add_span(
            "wait for bucket " + std::to_string(i + 1),
            *bucket.waiting,
            *bucket.waited,
            step);
      }
    }
  }

  json& events_;
  const RankTimeline& timeline_;
  Time begin_;
  int64_t track_;
};

} // namespace

void write_trace(
    std::ostream& out,
    const std::vector<RankTimeline>& timelines) {
  auto events = json::array();
  const auto begin = range_of(timelines).first;
  const bool several =
      std::any_of(timelines.begin(), timelines.end(), [&](const auto& one) {
        return one.reducer != timelines[0].reducer;
      });
  int64_t track = 1;
  for (size_t i = 0; i < timelines.size(); ++i) {
    const auto& timeline = timelines[i];
    if (i == 0 || timelines[i - 1].rank != timeline.rank) {
      track = 1;
      events.push_back(
          {{"ph", "M"},
           {"name", "process_name"},
           {"pid", timeline.rank},
           {"args",
            {{"name",
              "rank " + std::to_string(timeline.rank) + " (" + timeline.host +
                  ")"}}}});
    }
    track = Events(events, timeline, begin, track)
                .add(several ? " (" + timeline.reducer + ")" : "");
  }
  out << "[\n";
  for (size_t i = 0; i < events.size(); ++i) {
    out << events[i].dump(-1, ' ', true, json::error_handler_t::replace)
        << (i + 1 < events.size() ? ",\n" : "\n");
  }
  out << "]\n";
}

} // namespace ddp::command
