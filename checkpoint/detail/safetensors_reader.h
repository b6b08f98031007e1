#pragma once

#include <checkpoint/detail/byte_source.h>
#include <checkpoint/safetensors.h>

namespace ddp::detail {

/// Reads a safetensors file, wherever its bytes are. What is wrong with it
/// throws `c10::Error`, which does not name the file.
SafetensorsFile read_safetensors(const ByteSource& file);

} // namespace ddp::detail
