#pragma once

#include <checkpoint/formats/common/byte_source.h>
#include <ddp/checkpoint/checkpoint_file.h>

namespace ddp::detail {

/// Reads a safetensors file, wherever its bytes are. What is wrong with it
/// throws `c10::Error`, which does not name the file.
SafetensorsFile read_safetensors(const ByteSource& file);

/// Reads or maps the file at `path`, which errors name.
SafetensorsFile read_safetensors(const std::string& path, bool memory_map);

/// Whether the file at `path` is one: by its content, or where that begins like
/// no format at all, by its extension.
bool is_safetensors(const ByteSource& file, const std::string& path);

/// The text of its header, which follows 8 bytes and ends where the data
/// begins.
std::string read_safetensors_header(const ByteSource& file);

} // namespace ddp::detail
