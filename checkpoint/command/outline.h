#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

#include <cstdint>

namespace ddp::command {

/// The contents of a checkpoint without the data of its tensors.
struct Outline {
  bool is_safetensors = false;
  /// The program that wrote it, such as "ddp"; empty if unknown.
  std::string writer;
  /// Whether checksums cover every byte, in a safetensors file.
  bool has_digests = false;
  uint64_t bytes = 0;
  /// The value; its tensors are mapped pages of the file, not read yet.
  c10::IValue content;
  /// The metadata of a safetensors file, without the entries that are part of
  /// `content`.
  SafetensorsMetadata metadata;
};

/// Reads the file except the data of its tensors. Throws `c10::Error` that
/// names the file.
Outline read_outline(const std::string& path);

} // namespace ddp::command
