#pragma once

#include <sys/resource.h>
#include <tests/support/catch.h>

namespace ddp::test {

/// Requires that `body` passes in a fork of this process.
inline void require_in_child(const std::function<void()>& body) {
  output_of(child(body).finish(kLong));
}

/// The same of one that gets no more than `megabytes` above what this has, and
/// 20 seconds.
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
