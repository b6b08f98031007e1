#pragma once

#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace ddp::command {

/// Rows of cells in columns: the first flush left, the others flush right.
class Table {
 public:
  void add(std::vector<std::string> row) {
    rows_.push_back(std::move(row));
  }

  /// The first column is as wide as it may be on a line of `kLineWidth`; a
  /// longer cell is written whole, and shifts the rest of its row.
  void print(std::ostream& out) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

} // namespace ddp::command
