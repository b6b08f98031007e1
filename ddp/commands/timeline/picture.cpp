#include <ddp/commands/timeline/picture.h>

#include <common/text.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

namespace ddp::command {
namespace {

constexpr double kLeft = 130;
constexpr double kWidth = 820;
constexpr double kMargin = 20;
constexpr double kRow = 13;
constexpr double kThinRow = 7;
constexpr double kBetweenRanks = 12;
constexpr double kTop = 62;

constexpr const char* kForward = "#56b4e9";
constexpr const char* kBackward = "#0072b2";
constexpr const char* kWait = "#d55e00";
/// The colors of alternating buckets.
constexpr std::array kBucket{"#e69f00", "#f2c55c"};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      default:
        // A name may contain any bytes.
        result += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  return result;
}

std::string milliseconds(Time time) {
  std::ostringstream text;
  text.precision(3);
  text << static_cast<double>(time) / 1e6 << " ms";
  return text.str();
}

/// 1, 2 or 5 times a power of ten, about a tenth of `length`.
double tick(double length) {
  const double power = std::pow(10, std::floor(std::log10(length / 10)));
  for (const double times : {1, 2, 5}) {
    if (length / (times * power) <= 12) {
      return times * power;
    }
  }
  return 10 * power;
}

class Picture {
 public:
  Picture(Time begin, Time end)
      : begin_(begin), end_(std::max(end, begin + 1)) {
    body_ << std::fixed << std::setprecision(1);
  }

  double across(Time time) const {
    return kLeft +
        kWidth * static_cast<double>(time - begin_) /
        static_cast<double>(end_ - begin_);
  }

  void text(double x, double y, const std::string& words, const char* anchor) {
    body_ << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\""
          << anchor << "\">" << escaped(words) << "</text>\n";
  }

  void box(
      double x,
      double y,
      double width,
      double height,
      const char* color,
      const std::string& title) {
    body_ << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << width
          << "\" height=\"" << height << "\" fill=\"" << color << "\"><title>"
          << escaped(title) << "</title></rect>\n";
  }

  /// The tooltip shows `what` and the duration.
  void bar(
      Time from,
      Time to,
      double y,
      double height,
      const char* color,
      const std::string& what) {
    box(across(from),
        y,
        std::max(0.5, across(to) - across(from)),
        height,
        color,
        what + ": " + milliseconds(to - from));
  }

  /// Call this first: later shapes cover the grid.
  void grid(double top, double bottom) {
    const double length = static_cast<double>(end_ - begin_) / 1e6;
    const double step = tick(length);
    for (int i = 0; i * step <= length; ++i) {
      const double x = kLeft + kWidth * i * step / length;
      body_ << "<line x1=\"" << x << "\" y1=\"" << top << "\" x2=\"" << x
            << "\" y2=\"" << bottom << "\" stroke=\"#ddd\"/>\n";
      std::ostringstream label;
      label << i * step;
      text(x, bottom + 13, label.str(), "middle");
    }
    text(kLeft + kWidth, bottom + 27, "ms", "end");
  }

  void write(std::ostream& out, double height) const {
    out << std::fixed << std::setprecision(1)
        << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 "
        << kLeft + kWidth + kMargin << " " << height
        << "\" font-family=\"sans-serif\" font-size=\"11\">\n"
        << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        << body_.str() << "</svg>\n";
  }

 private:
  Time begin_;
  Time end_;
  std::ostringstream body_;
};

double height_of(const Track& track) {
  return track.name == std::string("waits") ? kThinRow : kRow;
}

double height_of(const RankTimeline& timeline) {
  double height = 0;
  for (const auto& track : timeline.tracks) {
    height += height_of(track);
  }
  return height;
}

const char* color_of(const Span& span) {
  switch (span.activity) {
    case Activity::kForward:
      return kForward;
    case Activity::kBackward:
      return kBackward;
    case Activity::kReduction:
      return kBucket.at(span.bucket % kBucket.size());
    case Activity::kWait:
      break;
  }
  return kWait;
}

void draw_span(Picture& picture, const Span& span, double y, double height) {
  constexpr double kDigit = 6.5;
  const bool reduces = span.activity == Activity::kReduction;
  picture.bar(
      span.begin,
      span.end,
      y,
      height - 2,
      color_of(span),
      "step " + std::to_string(span.step) + ", " + span.name() +
          (reduces ? ", " + size_text(span.bytes) : ""));
  const auto number = std::to_string(span.bucket);
  const double left = picture.across(span.begin);
  const double right = picture.across(span.end);
  if (reduces &&
      right - left > kDigit * static_cast<double>(number.size()) + 4) {
    picture.text((left + right) / 2, y + height - 4, number, "middle");
  }
}

void draw_rank(Picture& picture, const RankTimeline& timeline, double y) {
  for (const auto& track : timeline.tracks) {
    for (const auto& span : track.spans) {
      draw_span(picture, span, y, height_of(track));
    }
    y += height_of(track);
  }
}

void draw_head(Picture& picture, const std::vector<RankTimeline>& timelines) {
  auto first = std::numeric_limits<int64_t>::max();
  int64_t last = 0;
  int64_t error = 0;
  for (const auto& timeline : timelines) {
    const auto& computed = timeline.tracks.front().spans;
    first = std::min(first, computed.front().step);
    last = std::max(last, computed.back().step);
    error = std::max(error, timeline.clock_error.value_or(0));
  }
  picture.text(
      10,
      18,
      (first == last
           ? "Step " + std::to_string(first)
           : "Steps " + std::to_string(first) + " to " + std::to_string(last)) +
          " of " + std::to_string(timelines[0].world_size) +
          " ranks; clocks agree within " + milliseconds(error),
      "start");
  double x = kLeft;
  for (const auto& [color, name] :
       {std::pair(kForward, "forward"),
        std::pair(kBackward, "backward"),
        std::pair(kBucket[1], "a bucket's reduction, with its number"),
        std::pair(kWait, "wait for a reduction")}) {
    picture.box(x, 30, 10, 10, color, name);
    picture.text(x + 14, 39, name, "start");
    x += 40 + 6.0 * static_cast<double>(std::string(name).size());
  }
}

} // namespace

void write_picture(
    std::ostream& out,
    const std::vector<RankTimeline>& timelines) {
  const auto [begin, end] = range_of(timelines);
  const bool several = are_of_several(timelines);
  Picture picture(begin, end);
  double bottom = kTop;
  for (const auto& timeline : timelines) {
    bottom += height_of(timeline) + kBetweenRanks;
  }
  draw_head(picture, timelines);
  picture.grid(kTop - 8, bottom);
  double y = kTop;
  for (const auto& timeline : timelines) {
    picture.text(
        10, y + kRow - 3, "rank " + std::to_string(timeline.rank), "start");
    if (several) {
      picture.text(10, y + 2 * kRow - 3, timeline.reducer, "start");
    }
    draw_rank(picture, timeline, y);
    y += height_of(timeline) + kBetweenRanks;
  }
  picture.write(out, bottom + 34);
}

} // namespace ddp::command
