#include <checkpoint/formats/pickle/pickle_bytes.h>

#include <ddp/internal/check.h>

#include <algorithm>

namespace ddp::detail {

std::string_view PickleBytes::take(uint64_t bytes) {
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

double PickleBytes::take_double() {
  std::string bytes(take(sizeof(double)));
  std::reverse(bytes.begin(), bytes.end()); // the only big-endian number
  double value = 0;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

// Two's complement in as few bytes as hold it.
int64_t PickleBytes::take_long() {
  const auto bytes = take(take_number<uint8_t>());
  DDP_CHECK(
      bytes.size() <= sizeof(int64_t),
      "an integer of {} bits; this library supports 64",
      8 * bytes.size());
  const bool negative = !bytes.empty() && (bytes.back() & 0x80) != 0;
  int64_t value = negative ? -1 : 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  return value;
}

std::string PickleBytes::take_line() {
  const auto end = bytes_.find('\n', position_);
  DDP_CHECK(end != std::string_view::npos, "truncated: a name does not end");
  const auto line = take(end - position_);
  take(1);
  return std::string(line);
}

} // namespace ddp::detail
