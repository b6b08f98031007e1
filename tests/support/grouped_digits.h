#pragma once

#include <locale>
#include <string>

namespace ddp::test {

/// "1 2 3" for 123, with a blank as in French.
struct GroupedDigits : std::numpunct<char> {
  char do_thousands_sep() const override {
    return ' ';
  }
  std::string do_grouping() const override {
    return "\1";
  }
};

/// Sets the global C++ locale, which streams use. Returns the previous one.
inline std::locale group_digits() {
  return std::locale::global(
      std::locale(std::locale::classic(), new GroupedDigits));
}

} // namespace ddp::test
