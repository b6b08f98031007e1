#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

#include <string>
#include <vector>

namespace ddp::detail {

class SnapshotMemory;

/// Throws `c10::ValueError` if the extension is not supported.
void check_extension(const std::string& path);

/// `read_checkpoint_file`. `omitted`, unless null, gets the places, such as
/// "args", of the values that the file has but the result lacks, as this
/// library cannot read them.
c10::IValue read_checkpoint(
    const std::string& path,
    const LoadOptions& options,
    std::vector<std::string>* omitted);

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
