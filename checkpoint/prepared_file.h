#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

namespace ddp::detail {

class SnapshotMemory;

/// Throws `c10::ValueError` if the extension is not supported.
void check_extension(const std::string& path);

/// Does the part of `write_checkpoint_file` that depends on the value, and
/// returns a function that does the rest. With `memory`, the value's tensors
/// are copied to it, so the tensors may change before the function is called.
/// `metadata` is for a safetensors file. The returned function calls `check`
/// as `AtomicFile::commit` does.
std::function<void()> prepare_checkpoint_file(
    const std::string& path,
    const c10::IValue& value,
    SnapshotMemory* memory = nullptr,
    SafetensorsMetadata metadata = {},
    const std::function<void()>& check = nullptr);

} // namespace ddp::detail
