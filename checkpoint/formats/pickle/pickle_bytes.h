#pragma once

#include <ddp/internal/check.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::detail {

/// The bytes of a pickle, read in order. Reading past the end throws
/// `c10::Error`.
class PickleBytes {
 public:
  explicit PickleBytes(std::string_view bytes) : bytes_(bytes) {}

  size_t size() const {
    return bytes_.size();
  }
  size_t position() const {
    return position_;
  }

  std::string_view take(uint64_t bytes) {
    const auto left = bytes_.size() - position_;
    DDP_CHECK(
        bytes <= left,
        "truncated: expected {} bytes at byte {}, found {}",
        bytes,
        position_,
        left);
    const auto result = bytes_.substr(position_, bytes);
    position_ += bytes;
    return result;
  }

  /// A little-endian number, as all numbers except doubles are.
  template <typename T>
  T take_number() {
    T value{};
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  double take_double() {
    std::string bytes(take(sizeof(double)));
    std::reverse(bytes.begin(), bytes.end()); // the only big-endian number
    double value = 0;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }

  /// An integer in two's complement, in a variable number of bytes; none if its
  /// value may need more than 64 bits.
  std::optional<int64_t> take_long() {
    const auto bytes = take(take_number<uint8_t>());
    if (bytes.size() > sizeof(int64_t)) {
      return std::nullopt;
    }
    const bool negative = !bytes.empty() && (bytes.back() & 0x80) != 0;
    int64_t value = negative ? -1 : 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }

  /// The text up to the next newline, which must exist.
  std::string take_line() {
    const auto end = bytes_.find('\n', position_);
    DDP_CHECK(end != std::string_view::npos, "truncated: a name does not end");
    const auto line = take(end - position_);
    take(1);
    return std::string(line);
  }

 private:
  std::string_view bytes_;
  size_t position_ = 0;
};

} // namespace ddp::detail
