#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddp::detail {

/// Builds text in memory that the caller owns, for signal handlers and for code
/// that must not allocate. Text that does not fit is dropped.
class SignalSafeBuffer {
 public:
  SignalSafeBuffer(char* memory, size_t size) : memory_(memory), size_(size) {}

  std::string_view view() const {
    return {memory_, used_};
  }
  size_t room() const {
    return size_ - used_;
  }

  SignalSafeBuffer& add(char c) {
    if (used_ < size_) {
      memory_[used_++] = c;
    }
    return *this;
  }

  SignalSafeBuffer& add(std::string_view text) {
    for (const char c : text) {
      add(c);
    }
    return *this;
  }

  SignalSafeBuffer& add_number(uint64_t number, unsigned base = 10) {
    char digits[64];
    size_t count = 0;
    do {
      digits[count++] = "0123456789abcdef"[number % base];
      number /= base;
    } while (number > 0);
    while (count > 0) {
      add(digits[--count]);
    }
    return *this;
  }

  /// Adds `text` escaped for a JSON string; bytes that are not ASCII become
  /// '?'.
  SignalSafeBuffer& add_escaped(std::string_view text) {
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        add('\\').add(c);
      } else if (byte < 0x20) {
        add(byte < 0x10 ? "\\u000" : "\\u00").add_number(byte, 16);
      } else {
        add(byte < 0x7f ? c : '?');
      }
    }
    return *this;
  }

 private:
  char* memory_;
  size_t size_;
  size_t used_ = 0;
};

} // namespace ddp::detail
