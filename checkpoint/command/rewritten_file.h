#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

namespace ddp::command {

/// A completely verified checkpoint that will be written to another file.
struct Checkpoint {
  c10::IValue content;
  SafetensorsMetadata metadata;
};

/// Reads a checkpoint; its tensors are mapped pages of the file. Throws if the
/// checkpoint or, unless empty, its `entry` has values that cannot be read.
Checkpoint read_checkpoint(
    const std::string& path,
    const std::string& entry = "");

/// Writes `path` in the format of its extension, and prints a line about the
/// file. A safetensors file also gets the metadata.
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);

} // namespace ddp::command
