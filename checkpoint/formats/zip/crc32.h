#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::detail {

/// The CRC-32 of zip files over `bytes` more bytes, `crc` being that of what
/// precedes them and 0 at the start.
uint32_t crc32(uint32_t crc, const void* data, size_t bytes);

} // namespace ddp::detail
