#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace ddp::detail {

/// The bytes of a pickle, taken from first to last. What is not there throws
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

  /// A little-endian number, as all are but doubles.
  template <typename T>
  T take_number() {
    T value{};
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  double take_double();

  /// An integer of any size, of which 64 bits are taken.
  int64_t take_long();

  /// Text up to the end of the line, which it has to have.
  std::string take_line();

 private:
  std::string_view bytes_;
  size_t position_ = 0;
};

} // namespace ddp::detail
