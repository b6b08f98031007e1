#pragma once

#include <sys/resource.h>
#include <tests/support/catch.h>
#include <tests/support/test_program.h>

namespace ddp::test {

/// Runs `body`. Returns an exit code: 1 if it throws or an assertion fails.
inline int exit_code_of(const std::function<void()>& body) {
  int code = 1;
  try {
    body();
    code = has_failed() ? 1 : 0;
  } catch (const c10::Error& error) {
    std::cerr << "it threw: " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "it threw: " << error.what() << "\n";
  } catch (...) { // a failed REQUIRE, which Catch has shown
    std::cerr << "it failed an assertion\n";
  }
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  return code;
}

/// A fork of this process that runs `body`, for at most ten minutes.
inline Process child(const std::function<void()>& body) {
  std::cout.flush();
  std::fflush(nullptr);
  return Process([&] {
    alarm(600);
    return exit_code_of(body);
  });
}

/// Requires that `body` passes in a fork of this process.
inline void require_in_child(const std::function<void()>& body) {
  output_of(child(body).finish(kLong));
}

/// Requires this with at most `megabytes` more memory than this process has,
/// and in at most 20 seconds.
inline void require_in_child(
    size_t megabytes,
    const std::function<void()>& body) {
  require_in_child([&] {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const auto limit =
        pages * static_cast<size_t>(::getpagesize()) + (megabytes << 20);
    const rlimit memory{limit, limit};
    ::setrlimit(RLIMIT_AS, &memory);
    ::alarm(20);
    body();
  });
}

} // namespace ddp::test
