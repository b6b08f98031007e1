#pragma once

#include <checkpoint/detail/byte_source.h>
#include <checkpoint/safetensors.h>

#include <string>

namespace ddp::detail {

/// Reads a safetensors file, wherever its bytes are. What is wrong with it
/// throws `c10::Error`, which does not name the file.
SafetensorsFile read_safetensors(const ByteSource& file);

/// Whether the file begins as a safetensors file does, and no zip file.
bool begins_as_safetensors(const ByteSource& file);

/// The text of its header, which follows 8 bytes and ends where the data
/// begins.
std::string read_safetensors_header(const ByteSource& file);

} // namespace ddp::detail
