#pragma once

#include <ddp/internal/check.h>

namespace ddp::detail {

/// Calls `read()`, whose errors then also name the file at `path`.
template <typename Read>
auto naming_file(const std::string& path, const Read& read)
    -> decltype(read()) {
  try {
    return read();
  } catch (const c10::Error& error) {
    DDP_THROW(
        Error, "cannot read '{}': {}", path, error.what_without_backtrace());
  }
}

} // namespace ddp::detail
