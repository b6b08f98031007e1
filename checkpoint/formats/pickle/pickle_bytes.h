#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
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

  std::string_view take(uint64_t bytes);

  /// A little-endian number, as all numbers except doubles are.
  template <typename T>
  T take_number() {
    T value{};
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  double take_double();

  /// An integer of any size; it must fit into 64 bits.
  int64_t take_long();

  /// The text up to the end of the line, which must exist.
  std::string take_line();

 private:
  std::string_view bytes_;
  size_t position_ = 0;
};

} // namespace ddp::detail
