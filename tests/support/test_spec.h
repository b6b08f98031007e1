#pragma once

#include <string>

namespace ddp::test {

/// A test case's name as Catch2's filter that matches it alone.
inline std::string test_spec(const std::string& name) {
  std::string result;
  for (const char c : name) {
    const bool option = result.empty() && (c == '-' || c == '~');
    if (option || c == ',' || c == '[' || c == '\\') {
      result += '\\';
    }
    result += c;
  }
  return result;
}

} // namespace ddp::test
