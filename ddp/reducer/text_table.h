#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace ddp::detail {

/// Rows of cells in columns: the first `left` flush left, the others flush
/// right. All rows must have as many cells.
class TextTable {
 public:
  explicit TextTable(size_t left) : left_(left) {}

  void add(std::vector<std::string> row) {
    widths_.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) {
      widths_[i] = std::max(widths_[i], row[i].size());
    }
    rows_.push_back(std::move(row));
  }

  std::string text() const {
    std::string result;
    for (const auto& row : rows_) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string gap(widths_[i] - row[i].size(), ' ');
        line += (i > 0 ? "  " : "") + (i < left_ ? row[i] + gap : gap + row[i]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      result += line + "\n";
    }
    return result;
  }

 private:
  size_t left_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

} // namespace ddp::detail
