#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

namespace ddp::detail {

class SnapshotMemory;

/// Throws `c10::ValueError` if the extension is none of those above.
void check_extension(const std::string& path);

/// Does all of `write_checkpoint_file` that depends on the value, and returns
/// what is left to do. With `memory` the value's tensors are copied to it, and
/// may be changed before that. `metadata` go into a safetensors file.
std::function<void()> prepare_checkpoint_file(
    const std::string& path,
    const c10::IValue& value,
    SnapshotMemory* memory = nullptr,
    SafetensorsMetadata metadata = {});

} // namespace ddp::detail
