#pragma once

#include <tests/support/catch_plain.h>

namespace ddp::test {

/// The exit code of a test program that CTest shows as skipped.
inline constexpr int kSkippedCode = 77;

/// Whether a test case of this process was skipped.
inline bool& has_skipped() {
  static bool skipped = false;
  return skipped;
}

/// Ends a test case whose requirements this machine lacks. CTest shows the case
/// as skipped, or as failed if an assertion has failed. Call this function on
/// the main thread of the test's first process, before ranks are started.
[[noreturn]] inline void skip(const std::string& reason) {
  std::cout << "skipped: " << reason << std::endl;
  has_skipped() = true;
  // Catch2 ends the case as after a failed REQUIRE, but counts no failure.
  throw Catch::TestFailureException();
}

/// The Python with torch; skips the test case if no such Python exists.
inline std::string python_with_torch() {
  const char* python = std::getenv("DDP_PYTHON");
  if (python == nullptr || *python == '\0') {
    skip("DDP_PYTHON names no Python that has torch");
  }
  return python;
}

} // namespace ddp::test
