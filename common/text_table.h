#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include <common/text.h>

namespace ddp {

/// Rows of cells in columns: the first `left` columns are flush left, the
/// others flush right. All rows must have equally many cells.
class TextTable {
 public:
  /// `line` is the width of a line in columns, which limits the width of the
  /// first column. A longer cell is written in full, and shifts the rest of its
  /// row.
  explicit TextTable(size_t left, size_t line = std::string::npos)
      : left_(left), line_(line) {}

  void add(std::vector<std::string> row) {
    widths_.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) {
      widths_[i] = std::max(widths_[i], character_count(row[i]));
    }
    rows_.push_back(std::move(row));
  }

  std::string text() const {
    auto widths = widths_;
    size_t rest = 0;
    for (size_t i = 1; i < widths.size(); ++i) {
      rest += 2 + widths[i];
    }
    widths[0] = std::min(widths[0], line_ - std::min(rest, line_));
    std::string result;
    for (const auto& row : rows_) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) {
        const auto width = character_count(row[i]);
        const std::string gap(widths[i] - std::min(width, widths[i]), ' ');
        line += (i > 0 ? "  " : "") + (i < left_ ? row[i] + gap : gap + row[i]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      result += line + "\n";
    }
    return result;
  }

 private:
  size_t left_;
  size_t line_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

} // namespace ddp
