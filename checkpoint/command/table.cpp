#include <checkpoint/command/table.h>
#include <checkpoint/command/text.h>

#include <algorithm>

namespace ddp::command {
namespace {

constexpr size_t kGap = 2;

std::string padding(const std::string& cell, size_t width) {
  return std::string(width - std::min(width, width_of(cell)), ' ');
}

} // namespace

void Table::print(std::ostream& out) const {
  std::vector<size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  size_t rest = 0;
  for (size_t i = 1; i < widths.size(); ++i) {
    rest += kGap + widths[i];
  }
  const auto most = kLineWidth - std::min(rest, kLineWidth);
  widths[0] = std::min(widths[0], most);
  for (const auto& row : rows_) {
    out << row[0] << padding(row[0], widths[0]);
    for (size_t i = 1; i < row.size(); ++i) {
      out << std::string(kGap, ' ') << padding(row[i], widths[i]) << row[i];
    }
    out << '\n';
  }
}

} // namespace ddp::command
