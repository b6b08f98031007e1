#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

#include <cstdint>

namespace ddp::command {

/// What a checkpoint says of itself.
struct FileInfo {
  bool is_safetensors = false;
  /// The program that wrote it, such as "ddp"; empty if unknown.
  std::string writer;
  /// Of every byte, in a safetensors file.
  bool has_checksums = false;
  uint64_t bytes = 0;
  /// The value; its tensors are mapped pages of the file, not read yet.
  c10::IValue content;
  /// The metadata of a safetensors file, without the entries that are part of
  /// `content`.
  SafetensorsMetadata metadata;
};

/// Reads all of the file but what its tensors contain. Throws `c10::Error`
/// that names the file.
FileInfo read_file_info(const std::string& path);

/// A completely verified checkpoint, to be written to another file.
struct Checkpoint {
  c10::IValue content;
  SafetensorsMetadata metadata;
};

/// Reads a checkpoint; its tensors are mapped pages of the file.
Checkpoint read_checkpoint(const std::string& path);

/// Writes `path` in the format of its extension, and prints that. A safetensors
/// file also gets the metadata.
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);

} // namespace ddp::command
