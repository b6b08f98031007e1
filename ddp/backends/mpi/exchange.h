#pragma once

#include <ddp/backends/mpi/operation.h>

#include <vector>

namespace ddp::backends::mpi {

/// Starts a message to each rank, or one to all, and one from each, in the
/// order of the ranks; nothing goes where a tensor is undefined or empty.
void exchange(
    const Channel& channel,
    Requests& requests,
    const std::vector<at::Tensor>& to_ranks,
    const std::vector<at::Tensor>& from_ranks);

} // namespace ddp::backends::mpi
