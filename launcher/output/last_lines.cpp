#include <launcher/output/last_lines.h>

#include <algorithm>

namespace ddp {
namespace {

std::string_view last_bytes(std::string_view text, size_t count) {
  return text.substr(text.size() - std::min(text.size(), count));
}

} // namespace

void LastLines::add(std::string_view line) {
  const std::lock_guard<std::mutex> lock(mutex_);
  text_ += last_bytes(line, kBytes - 1);
  text_ += '\n';
  if (text_.size() > 2 * kBytes) {
    text_.erase(0, text_.size() - kBytes);
  }
}

std::vector<std::string> LastLines::lines() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string_view rest = last_bytes(text_, kBytes);
  std::vector<std::string> lines;
  for (size_t end; (end = rest.find('\n')) != std::string_view::npos;) {
    lines.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  if (lines.size() > kLines) {
    lines.erase(lines.begin(), lines.end() - kLines);
  }
  return lines;
}

} // namespace ddp
