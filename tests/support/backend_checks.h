#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

// What every backend of ours has to do, on any number of ranks.

namespace ddp::test {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

/// Collectives that move tensors, of lists that may differ in length, of any
/// dtype, and messages that match by rank and tag.
void check_movement(const BackendPtr& backend);

/// All-reduce and reduce, each operation for each dtype.
void check_reductions(const BackendPtr& backend);

} // namespace ddp::test
