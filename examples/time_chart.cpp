#include "time_chart.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <fstream>

namespace {

constexpr double kLeft = 90;
constexpr double kWidth = 720;
constexpr double kRight = 80;
constexpr double kRow = 24;
constexpr double kBar = 18;
constexpr double kBaseline = 14; // of text in a row
constexpr double kLetter = 6; // its width, about

} // namespace

TimeChart::TimeChart(double begin, double end)
    : begin_(begin), scale_(kWidth / (end - begin)) {}

double TimeChart::x(double time) const {
  return kLeft + (time - begin_) * scale_;
}

void TimeChart::row(const std::string& name) {
  y_ += kRow;
  body_ << "<text x='8' y='" << y_ + kBaseline << "'>" << name << "</text>\n";
}

void TimeChart::bar(
    double from,
    double to,
    const std::string& color,
    const std::string& text) {
  const double width = std::max(0.5, (to - from) * scale_);
  body_ << "<rect x='" << x(from) << "' y='" << y_ << "' width='" << width
        << "' height='" << kBar << "' fill='" << color << "'/>\n";
  if (!text.empty()) {
    body_ << "<text x='" << x(from) + width + 4 << "' y='" << y_ + kBaseline
          << "'>" << text << "</text>\n";
  }
}

void TimeChart::mark(double time) {
  body_ << "<path d='M" << x(time) << ' ' << y_ << 'v' << kBar
        << "' stroke='#222'/>\n";
}

void TimeChart::legend(
    const std::vector<std::pair<std::string, std::string>>& entries) {
  double at = kLeft;
  for (const auto& [text, color] : entries) {
    body_ << "<rect x='" << at << "' y='6' width='10' height='10' fill='"
          << color << "'/>\n<text x='" << at + 14 << "' y='15'>" << text
          << "</text>\n";
    at += 30 + kLetter * static_cast<double>(text.size());
  }
}

std::string TimeChart::axis() const {
  const double span = kWidth / scale_;
  double step = 1;
  for (const double factor : {2., 2.5, 2., 2., 2.5, 2., 2., 2.5, 2.}) {
    step *= span / step > 12 ? factor : 1; // 1, 2, 5, 10, ...
  }
  std::ostringstream text;
  const double y = y_ + kRow + 8;
  text << "<path d='M" << kLeft << ' ' << y << 'h' << kWidth
       << "' stroke='#222'/>\n";
  for (double time = 0; time <= span; time += step) {
    text << "<path d='M" << kLeft + time * scale_ << ' ' << y
         << "v4' stroke='#222'/>\n<text x='" << kLeft + time * scale_ << "' y='"
         << y + 18 << "'>" << time << (time == 0 ? " ms" : "") << "</text>\n";
  }
  return text.str();
}

void TimeChart::write(const std::string& path) const {
  std::ofstream file(path);
  file << "<svg xmlns='http://www.w3.org/2000/svg' width='"
       << kLeft + kWidth + kRight << "' height='" << y_ + 2 * kRow + 16
       << "' font-family='sans-serif' font-size='12'>\n"
       << "<rect width='100%' height='100%' fill='white'/>\n"
       << body_.str() << axis() << "</svg>\n";
  file.close();
  TORCH_CHECK(file, "cannot write ", path);
}
