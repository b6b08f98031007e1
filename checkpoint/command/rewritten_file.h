#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

namespace ddp::command {

/// A checkpoint that is to be written again, all of it verified.
struct Checkpoint {
  c10::IValue content;
  SafetensorsMetadata metadata;
};

/// The tensors are the file's pages.
Checkpoint read_checkpoint(const std::string& path);

/// Writes `path` in the format of its extension, and says so. Where that is
/// safetensors the metadata go along.
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);

} // namespace ddp::command
