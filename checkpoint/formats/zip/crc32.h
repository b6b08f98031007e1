#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::detail {

/// Continues the CRC-32 of zip files over `bytes` bytes; `crc` is the CRC-32 of
/// the preceding bytes, 0 at the start.
uint32_t crc32(uint32_t crc, const void* data, size_t bytes);

} // namespace ddp::detail
