#include <ddp/commands/timeline/picture.h>

#include <common/text.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <string>

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
/// Of neighbouring buckets.
constexpr std::array kBucket{"#e69f00", "#f2c55c"};

std::string number(double value) {
  std::ostringstream text;
  text.setf(std::ios::fixed);
  text.precision(1);
  text << value;
  return text.str();
}

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
        // A host's name may be anything.
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

/// 1, 2 or 5 times a power of ten, so that about ten of it are `length`.
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
      : begin_(begin), end_(std::max(end, begin + 1)) {}

  double across(Time time) const {
    return kLeft +
        kWidth * static_cast<double>(time - begin_) /
        static_cast<double>(end_ - begin_);
  }

  void text(double x, double y, const std::string& words, const char* anchor) {
    body_ << "<text x=\"" << number(x) << "\" y=\"" << number(y)
          << "\" text-anchor=\"" << anchor << "\">" << escaped(words)
          << "</text>\n";
  }

  void box(
      double x,
      double y,
      double width,
      double height,
      const char* color,
      const std::string& title) {
    body_ << "<rect x=\"" << number(x) << "\" y=\"" << number(y)
          << "\" width=\"" << number(width) << "\" height=\"" << number(height)
          << "\" fill=\"" << color << "\"><title>" << escaped(title)
          << "</title></rect>\n";
  }

  /// `what` is shown where the pointer is on it, with its length.
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

  void vertical(double x, double top, double bottom) {
    body_ << "<line x1=\"" << number(x) << "\" y1=\"" << number(top)
          << "\" x2=\"" << number(x) << "\" y2=\"" << number(bottom)
          << "\" stroke=\"#ddd\"/>\n";
  }

  /// Under what comes later. Returns where the labels end.
  void grid(double top, double bottom) {
    const double length = static_cast<double>(end_ - begin_) / 1e6;
    const double step = tick(length);
    for (int i = 0; i * step <= length; ++i) {
      const double x = kLeft + kWidth * i * step / length;
      vertical(x, top, bottom);
      std::ostringstream label;
      label << i * step;
      text(x, bottom + 13, label.str(), "middle");
    }
    text(kLeft + kWidth, bottom + 27, "ms", "end");
  }

  void write(std::ostream& out, double height) const {
    out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 "
        << number(kLeft + kWidth + kMargin) << " " << number(height)
        << "\" font-family=\"sans-serif\" font-size=\"11\">\n"
        << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        << body_.str() << "</svg>\n";
  }

 private:
  Time begin_;
  Time end_;
  std::ostringstream body_;
};

size_t rows_in(const std::vector<Reduction>& reductions) {
  size_t rows = 1;
  for (const auto& reduction : reductions) {
    rows = std::max(rows, reduction.row + 1);
  }
  return rows;
}

double height_of(const RankTimeline& timeline) {
  return kRow * static_cast<double>(1 + rows_in(reductions_of(timeline))) +
      kThinRow;
}

std::string in_step(const RecordedStep& step, const std::string& what) {
  return "step " + std::to_string(step.step) + ", " + what;
}

void draw_computing(Picture& picture, const RecordedStep& step, double y) {
  if (step.forward_began && step.forward_ended) {
    picture.bar(
        *step.forward_began,
        *step.forward_ended,
        y,
        kRow - 2,
        kForward,
        in_step(step, "forward"));
  }
  picture.bar(
      step.began,
      step.computed,
      y,
      kRow - 2,
      kBackward,
      in_step(step, "backward"));
}

void draw_reduction(Picture& picture, const Reduction& reduction, double y) {
  constexpr double kDigit = 6.5;
  const auto& bucket = *reduction.bucket;
  const auto name = std::to_string(reduction.number);
  picture.bar(
      *bucket.launched,
      *bucket.done,
      y,
      kRow - 2,
      kBucket.at(reduction.number % kBucket.size()),
      in_step(
          *reduction.step, "bucket " + name + ", " + size_text(bucket.bytes)));
  const double left = picture.across(*bucket.launched);
  const double right = picture.across(*bucket.done);
  if (right - left > kDigit * static_cast<double>(name.size()) + 4) {
    picture.text((left + right) / 2, y + kRow - 4, name, "middle");
  }
}

void draw_rank(Picture& picture, const RankTimeline& timeline, double y) {
  for (const auto& step : timeline.steps) {
    draw_computing(picture, step, y);
  }
  const auto reductions = reductions_of(timeline);
  for (const auto& reduction : reductions) {
    const auto row = static_cast<double>(1 + reduction.row);
    draw_reduction(picture, reduction, y + row * kRow);
  }
  y += kRow * static_cast<double>(1 + rows_in(reductions));
  for (const auto& step : timeline.steps) {
    for (size_t i = 0; i < step.buckets.size(); ++i) {
      const auto& bucket = step.buckets[i];
      if (bucket.waiting && bucket.waited) {
        picture.bar(
            *bucket.waiting,
            *bucket.waited,
            y,
            kThinRow - 2,
            kWait,
            in_step(step, "wait for bucket " + std::to_string(i + 1)));
      }
    }
  }
}

void draw_head(Picture& picture, const std::vector<RankTimeline>& timelines) {
  auto first = timelines[0].steps.front().step;
  auto last = first;
  int64_t error = 0;
  for (const auto& timeline : timelines) {
    first = std::min(first, timeline.steps.front().step);
    last = std::max(last, timeline.steps.back().step);
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
        std::pair(kWait, "waiting for one")}) {
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
  const bool several =
      std::any_of(timelines.begin(), timelines.end(), [&](const auto& one) {
        return one.reducer != timelines[0].reducer;
      });
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
