#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::command {

/// The information that a checkpoint contains about itself.
struct FileInfo {
  bool is_safetensors = false;
  /// The program that wrote the file, such as "ddp"; empty if unknown.
  std::string writer;
  /// Whether a safetensors file has checksums that cover every byte, or a `.pt`
  /// file the CRC-32 of each record.
  bool has_checksums = false;
  uint64_t bytes = 0;
  /// The value; its tensors are mapped pages of the file, which are not read
  /// yet.
  c10::IValue content;
  /// The places of the values that `content` lacks, as this library cannot read
  /// them.
  std::vector<std::string> omitted;
  /// The metadata of a safetensors file, without the entries that are part of
  /// `content`.
  SafetensorsMetadata metadata;
};

/// Reads the whole file except the contents of tensors; for an index, also the
/// files that it names. Throws a `c10::Error` that names the file. `strict` is
/// as in `LoadOptions`.
FileInfo read_file_info(const std::string& path, bool strict = true);

} // namespace ddp::command
