#pragma once

#include <ATen/core/ivalue.h>
#include <ddp/checkpoint/load_options.h>
#include <ddp/export.h>

#include <functional>
#include <string>

namespace ddp {

/// Reads the checkpoint at `path`, of any format that this library knows
/// (`read_torch_file`, `read_safetensors`), told by its content.
///
/// A safetensors file is a dict of its tensors, or the value that
/// `write_checkpoint_file` wrote. Throws `c10::Error` where the file is
/// damaged. Not collective.
DDP_API c10::IValue read_checkpoint_file(
    const std::string& path,
    const LoadOptions& options = {});

/// Writes `value`, a tree of tensors, numbers, strings, lists, tuples and
/// dicts, to the file at `path`, which is replaced as a whole or not at all.
///
/// The format goes by the extension: `.pt` and `.pth` (`write_torch_file`), or
/// `.safetensors`. There tensors are named by their places, such as
/// "model.conv.weight", and what is besides is in the metadata, as JSON; a dict
/// of nothing but tensors has their names alone. Throws as those two do, and
/// `c10::ValueError` for another extension. Not collective.
DDP_API void write_checkpoint_file(
    const std::string& path,
    const c10::IValue& value);

/// Reads all of the checkpoint at `path` and keeps nothing; throws `c10::Error`
/// where it is damaged. Not collective.
DDP_API void verify_checkpoint_file(const std::string& path);

namespace detail {
class SnapshotMemory;

/// Throws `c10::ValueError` where the extension is none of those above.
DDP_API void check_extension(const std::string& path);

/// Does all of `write_checkpoint_file` that depends on the value, and returns
/// what is left to do. With `memory` the value's tensors are copied to it, and
/// may be changed before that.
DDP_API std::function<void()> prepare_checkpoint_file(
    const std::string& path,
    const c10::IValue& value,
    SnapshotMemory* memory = nullptr);

} // namespace detail
} // namespace ddp
