#pragma once

#include <ATen/core/ivalue.h>
#include <checkpoint/formats/pickle/allowed_globals.h>

#include <string>
#include <string_view>
#include <vector>

namespace ddp::detail {

/// The value that a pickle of `torch.save` describes.
///
/// The protocol must be 2 to 5. Nothing is executed: names must be those of
/// `find_global`; any other opcode, name or value is rejected, and the error
/// names it. At most `budget` bytes are allocated in addition to the storages;
/// this limit also bounds the time. A value that contains itself, is nested too
/// deeply, or would expand to much more than the pickle (such as nested lists
/// that share their items) also throws `c10::Error`. Unless `strict`, items of
/// a dict whose keys or values are or contain objects of other classes are
/// dropped; `omitted` is as in `make_tree`.
c10::IValue read_pickle(
    std::string_view pickle,
    uint64_t budget,
    const LoadStorage& load,
    bool strict = true,
    std::vector<std::string>* omitted = nullptr);

} // namespace ddp::detail
