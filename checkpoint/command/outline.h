#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

#include <cstdint>

namespace ddp::command {

/// What a checkpoint says of itself.
struct Outline {
  bool is_safetensors = false;
  /// What wrote it, such as "ddp"; empty if that is not known.
  std::string writer;
  /// Of every byte, in a safetensors file.
  bool has_digests = false;
  uint64_t bytes = 0;
  /// Its tensors are the pages of the file, none of which has been read.
  c10::IValue content;
  /// Of a safetensors file, without what the content is made of.
  SafetensorsMetadata metadata;
};

/// Reads all of the file but what its tensors contain. Throws `c10::Error`
/// that names the file.
Outline read_outline(const std::string& path);

} // namespace ddp::command
