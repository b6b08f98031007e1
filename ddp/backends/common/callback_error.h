#pragma once

#include <ddp/support/error_text.h>

#include <string>

namespace ddp::backends {

/// Runs `complete`, which completes the future of an operation on a thread that
/// must not throw; says what a callback threw, or nothing.
template <typename Function>
std::string callback_error(const char* operation, Function&& complete) {
  const auto said =
      c10::str("a callback on the future of ", operation, " threw ");
  try {
    complete();
    return "";
  } catch (const std::exception& error) {
    return said + detail::error_text(error);
  } catch (...) {
    return said + "something that is no std::exception";
  }
}

} // namespace ddp::backends
