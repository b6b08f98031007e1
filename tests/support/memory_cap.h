#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <tests/support/catch.h>

namespace ddp::test {

/// Requires that `body` returns true in a process that gets no more than
/// `megabytes` above what it has, within 20 seconds.
inline void require_in_child(
    size_t megabytes,
    const std::function<bool()>& body) {
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const auto limit =
        pages * static_cast<size_t>(::getpagesize()) + (megabytes << 20);
    const rlimit memory{limit, limit};
    ::setrlimit(RLIMIT_AS, &memory);
    ::alarm(20);
    bool good = false;
    try {
      good = body();
    } catch (...) {
    }
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  INFO("status " << status);
  REQUIRE(status == 0);
}

} // namespace ddp::test
