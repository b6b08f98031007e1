#pragma once

#include <string>

namespace ddp {

/// SHA-256 (FIPS 180-4) of `text`: 32 raw bytes. Our own, since the launcher
/// links no library that has one.
std::string sha256(const std::string& text);

} // namespace ddp
