#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

/// The last lines of a stream: at most kLines, and kBytes with their newlines.
/// For any thread.
class LastLines {
 public:
  static constexpr size_t kLines = 20;
  static constexpr size_t kBytes = 4096;

  /// Adds a line, given without its newline.
  void add(std::string_view line);

  std::vector<std::string> lines() const;

 private:
  mutable std::mutex mutex_;
  std::string text_; // ends with a newline
};

} // namespace ddp
