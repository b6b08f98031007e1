#pragma once

#include <tests/support/launched.h>

namespace ddp::test {

inline Command example(int ranks, const std::string& name, Words arguments) {
  arguments.insert(arguments.begin(), variable("DDP_EXAMPLES") + "/" + name);
  return with_ddprun(ranks, arguments);
}

/// The groups of the first match in a text, which must contain a match.
inline Words match(const std::string& text, const std::string& pattern) {
  CAPTURE(text, pattern);
  const auto all = matches(text, pattern);
  REQUIRE(!all.empty());
  return all.front();
}

/// Whether values are equal except for rounding in sums of a different order.
inline bool is_near(double value, double expected, double tolerance = 1e-5) {
  return std::abs(value - expected) <= tolerance * std::abs(expected);
}

} // namespace ddp::test
