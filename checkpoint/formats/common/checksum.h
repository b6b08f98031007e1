#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ddp::detail {

/// The number of hexadecimal digits of a checksum.
constexpr size_t kChecksumSize = 16;

/// The 64-bit XXH3 (https://xxhash.com) of bytes that arrive piece by piece.
class Checksum {
 public:
  Checksum();
  void add(const void* data, size_t bytes);
  void add(const std::string& text) {
    add(text.data(), text.size());
  }
  uint64_t value() const;
  std::string hex() const;

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

} // namespace ddp::detail
