#pragma once

// LibTorch and Catch2 both define CHECK and similar macros. LibTorch must be
// included first; its CHECK is undefined.
#include <torch/torch.h>
#undef CHECK
#include <c10/macros/Macros.h>
#include <tests/support/catch_plain.h>
#include <tests/support/process.h>

/// A test case that `run` runs, and whose body has these parameters.
#define DDP_TEST_BY(run, parameters, ...) \
  DDP_TEST_OF(C10_ANONYMOUS_VARIABLE(body_), run, parameters, __VA_ARGS__)
#define DDP_TEST_OF(body, run, parameters, ...) \
  static void body parameters;                  \
  TEST_CASE(DDP_TITLE(__VA_ARGS__, )) {         \
    ::ddp::test::run(body, __VA_ARGS__);        \
  }                                             \
  static void body parameters
#define DDP_TITLE(title, ...) title

namespace ddp::test {

/// A test case whose body gets a new `folder`.
#define FOLDER_TEST(title) \
  DDP_TEST_BY(folder_test, (const TemporaryFolder& folder), title)
inline void folder_test(
    void (*body)(const TemporaryFolder&),
    const char* /*title*/) {
  const TemporaryFolder folder;
  body(folder);
}

/// The output of a process, which must have ended with this exit code.
inline std::string output_of(const Outcome& outcome, int exit_code = 0) {
  INFO(outcome.output);
  REQUIRE(outcome.exit_code == exit_code);
  return outcome.output;
}

/// The text of the error that `function` throws; empty if no error is thrown.
template <typename Error = c10::Error, typename Function>
std::string words_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

/// Calls `heard` with each warning of this thread during this object's
/// lifetime.
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
