#pragma once

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

/// The last lines of a stream: at most kLines, and of each kBytes, its last
/// ones. For any thread.
class LastLines {
 public:
  static constexpr size_t kLines = 20;
  static constexpr size_t kBytes = 1024;

  /// Adds a line, given without its newline.
  void add(std::string_view line) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lines_.emplace_back(
        line.substr(line.size() - std::min(line.size(), kBytes)));
    if (lines_.size() > kLines) {
      lines_.pop_front();
    }
  }

  std::vector<std::string> lines() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return {lines_.begin(), lines_.end()};
  }

 private:
  mutable std::mutex mutex_;
  std::deque<std::string> lines_;
};

} // namespace ddp
