#pragma once

#include <ATen/core/ivalue.h>
#include <ddp/export.h>

#include <string>

namespace ddp {

/// Reads the file at `path` that Python's `torch.save`, or LibTorch, wrote.
///
/// The value is made of tensors, `int64_t`, `double`, `bool`, `std::string`,
/// none, lists (`c10::impl::GenericList`), tuples and dicts
/// (`c10::impl::GenericDict`, keys strings or integers, in the file's order).
/// Tensors come on the CPU, from whatever device they were; those that shared
/// memory share it again.
///
/// It takes the zip format of torch 1.6 and later, and what LibTorch's own
/// `torch::save` writes: an archive is a dict of what was written to it, and a
/// module a dict of its parameters, buffers and children. Python's classes and
/// functions are known by name, in a list of those that state_dicts need; any
/// other is refused by its name, and nothing is executed. Sizes are checked
/// before memory is allocated and the CRC-32 of every record after reading: a
/// truncated, damaged or hostile file throws `c10::Error` that names the file
/// and what is wrong. Values take at most 128 MiB and 24 times the size of the
/// file, beside the tensors. Not collective.
DDP_API c10::IValue read_torch_file(const std::string& path);

/// Writes `value`, of the types above, to the file at `path`, which is replaced
/// as a whole or not at all.
///
/// Python reads it with `torch.load`, whose default is `weights_only=True`.
/// Tensors may have any dtype, strides and device. Those that share a storage
/// share it in Python as well, unless they use less than half of it: then each
/// is written by itself, so that a small view does not take a large tensor
/// along. Throws `c10::TypeError` for types that are not above and for sparse
/// and quantized tensors, `c10::ValueError` for undefined tensors, text that is
/// not UTF-8 and values nested too deep, `c10::Error` where the file cannot be
/// written. Not collective.
DDP_API void write_torch_file(
    const std::string& path,
    const c10::IValue& value);

} // namespace ddp
