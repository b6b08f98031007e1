#pragma once

#include <sstream>
#include <string>
#include <utility>
#include <vector>

/// Rows of bars over one axis of time, in milliseconds, as an SVG picture.
class TimeChart {
 public:
  TimeChart(double begin, double end);

  /// What follows stands in a new row.
  void row(const std::string& name);

  void bar(
      double from,
      double to,
      const std::string& color,
      const std::string& text = "");

  /// A line across the row.
  void mark(double time);

  /// What the colors mean: {text, color}.
  void legend(const std::vector<std::pair<std::string, std::string>>& entries);

  void write(const std::string& path) const;

 private:
  double x(double time) const;
  std::string axis() const;

  double begin_;
  double scale_; // pixels for a millisecond
  double y_ = 0;
  std::ostringstream body_;
};
