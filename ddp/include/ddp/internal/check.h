#pragma once

// The library throws LibTorch's error types with only a message, while
// TORCH_CHECK adds a source line to `what()`.

#include <c10/util/Exception.h>

#include <ddp/internal/export.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace ddp::detail {

/// Whether errors include a stack trace, as with TORCH_SHOW_CPP_STACKTRACES=1
/// or DDP_DEBUG.
DDP_API bool shows_frames();

/// Replaces each "{}" in `form` with the next of `values`, and appends the
/// remaining values.
DDP_API std::string fill_in(
    std::string_view form,
    std::initializer_list<std::string> values);

template <typename... Values>
std::string format(std::string_view form, const Values&... values) {
  return fill_in(form, {std::string(c10::str(values))...});
}

template <typename Error>
[[noreturn]] void throw_error(
    const c10::SourceLocation& place,
    std::string text) {
  if (shows_frames()) {
    throw Error(place, std::move(text));
  }
  throw Error(std::move(text), /*backtrace=*/nullptr);
}

} // namespace ddp::detail

/// Throws a `c10` exception of type `Error` with the other arguments, formatted
/// by `format`, as the message.
#define DDP_THROW(Error, ...)                                \
  ::ddp::detail::throw_error<::c10::Error>(                  \
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, \
      ::ddp::detail::format(__VA_ARGS__))

/// If the condition is false, formats the message and throws.
#define DDP_CHECK_WITH(Error, condition, ...) \
  do {                                        \
    if (C10_UNLIKELY(!(condition))) {         \
      DDP_THROW(Error, __VA_ARGS__);          \
    }                                         \
  } while (false)
#define DDP_CHECK(condition, ...) DDP_CHECK_WITH(Error, condition, __VA_ARGS__)
#define DDP_CHECK_VALUE(condition, ...) \
  DDP_CHECK_WITH(ValueError, condition, __VA_ARGS__)
#define DDP_CHECK_TYPE(condition, ...) \
  DDP_CHECK_WITH(TypeError, condition, __VA_ARGS__)
