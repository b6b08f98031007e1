#pragma once

#include <ATen/core/ivalue.h>
#include <checkpoint/formats/pickle/pickle_calls.h>

#include <string_view>

namespace ddp::detail {

/// The value that a pickle of `torch.save` describes.
///
/// The pickle is of protocol 2 to 5. Nothing is executed: its names are those
/// of `find_global`, and every other opcode, name and value is refused by name.
/// Memory, and so time, is bounded by `budget` bytes beside the storages: a
/// value that contains itself, nests too deep, or would be far larger written
/// out than the pickle is (as a list of lists of lists that are one) throws
/// `c10::Error` as well. Unless `strict`, a dict's items whose values are or
/// contain objects of other classes are left out.
c10::IValue read_pickle(
    std::string_view pickle,
    uint64_t budget,
    const LoadStorage& load,
    bool strict = true);

} // namespace ddp::detail
