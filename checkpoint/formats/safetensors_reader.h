#pragma once

#include <checkpoint/formats/common/byte_source.h>
#include <checkpoint/formats/safetensors_header.h>
#include <ddp/checkpoint/checkpoint_file.h>

namespace ddp::detail {

/// Reads a safetensors file from any source. Throws `c10::Error`, which does
/// not name the file, if the file is invalid. Without `verify`, the tensors of
/// a mapped file are not read.
SafetensorsFile read_safetensors(const ByteSource& file, bool verify = true);

/// Reads the file at `path`; errors name the file.
SafetensorsFile read_safetensors(const std::string& path, FileAccess access);

/// Also calls `check` as `AtomicFile::commit` does.
void write_safetensors(
    const std::string& path,
    const StateDict& tensors,
    const SafetensorsMetadata& metadata,
    const std::function<void()>& check = nullptr);

/// Whether the file at `path` is a safetensors file, by its contents, or, if
/// these match no format, by its extension.
bool is_safetensors(const ByteSource& file, const std::string& path);

/// Reads and checks a file's header.
SafetensorsHeader read_safetensors_header(const ByteSource& file);

} // namespace ddp::detail
