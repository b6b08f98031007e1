#pragma once

#include <c10/util/Exception.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ddp::test {

/// Calls `heard` with each warning of this thread while it lives.
class WarningListener : c10::WarningHandler {
 public:
  explicit WarningListener(std::function<void(const std::string&)> heard)
      : heard_(std::move(heard)), guard_(this) {}

  void process(const c10::Warning& warning) override {
    heard_(warning.msg());
  }

 private:
  std::function<void(const std::string&)> heard_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

/// The warnings that `action` causes.
inline std::vector<std::string> warnings_of(
    const std::function<void()>& action) {
  std::vector<std::string> texts;
  const WarningListener listener(
      [&](const std::string& text) { texts.push_back(text); });
  action();
  return texts;
}

} // namespace ddp::test
