#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace ddp::detail {

/// The text of an exception, without the stack trace that LibTorch adds.
inline std::string error_text(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return c10_error ? c10_error->what_without_backtrace() : error.what();
}

} // namespace ddp::detail
