#pragma once

#include <ATen/core/ivalue.h>
#include <checkpoint/formats/pickle/allowed_globals.h>

#include <string_view>

namespace ddp::detail {

/// The value that a pickle of `torch.save` describes.
///
/// The protocol must be 2 to 5. Nothing is executed: the only names are those
/// of `find_global`; any other opcode, name or value is rejected, and the error
/// names it. Memory, and so time, is limited to `budget` bytes beside the
/// storages. A value that contains itself, is nested too deep, or would expand
/// to far more than the pickle (such as nested lists that share their items)
/// also throws `c10::Error`. Unless `strict`, a dict's items whose values are
/// or contain objects of other classes are left out.
c10::IValue read_pickle(
    std::string_view pickle,
    uint64_t budget,
    const LoadStorage& load,
    bool strict = true);

} // namespace ddp::detail
