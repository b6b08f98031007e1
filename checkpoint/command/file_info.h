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

} // namespace ddp::command
