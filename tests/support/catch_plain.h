#pragma once

// Catch2, version 2 or 3, for tests that do not need LibTorch, and the standard
// headers that tests use.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Matchers::MatcherBase;
#else
#include <catch2/catch.hpp>
using Catch::MatcherBase;
#endif

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

/// Matches text that contains each of the parts.
class Has : public MatcherBase<std::string> {
 public:
  template <typename... Parts>
  explicit Has(const Parts&... parts) : parts_{std::string(parts)...} {}

  bool match(const std::string& text) const override {
    return std::all_of(parts_.begin(), parts_.end(), [&](const auto& part) {
      return text.find(part) != std::string::npos;
    });
  }

  std::string describe() const override {
    std::string all = "has";
    for (const auto& part : parts_) {
      all += " \"" + part + '"';
    }
    return all;
  }

 private:
  std::vector<std::string> parts_;
};

namespace ddp::test {

/// The bytes as hexadecimal digits.
inline std::string hex(const void* data, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    const auto byte = static_cast<const unsigned char*>(data)[i];
    text += "0123456789abcdef"[byte / 16];
    text += "0123456789abcdef"[byte % 16];
  }
  return text;
}

/// The number of times that `part` occurs in `text`.
inline int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

/// The texts that the pattern's groups match, for each match.
inline std::vector<std::vector<std::string>> matches(
    const std::string& text,
    const std::string& pattern) {
  const std::regex form(pattern);
  std::vector<std::vector<std::string>> all;
  for (std::sregex_iterator i(text.begin(), text.end(), form), end; i != end;
       ++i) {
    auto& groups = all.emplace_back();
    for (size_t group = 1; group < i->size(); ++group) {
      groups.push_back((*i)[group]);
    }
  }
  return all;
}

} // namespace ddp::test
