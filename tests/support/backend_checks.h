#pragma once

#include <ddp/process_group.h>
#include <tests/support/backend_values.h>

// What every backend of ours has to do, on any number of ranks.

namespace ddp::test {

/// Collectives that move tensors, of lists that may differ in length and of any
/// dtype.
void check_movement(const BackendPtr& backend);

/// Of these, broadcasts and all-gathers of any dtype, and what is in place.
void check_any_dtype(const BackendPtr& backend);

/// On two ranks or more: messages that match by rank and tag.
void check_tagged_messages(const BackendPtr& backend);

/// All-reduce and reduce, each operation for each dtype.
void check_reductions(const BackendPtr& backend);

void check_same_sparse(const torch::Tensor& a, const torch::Tensor& b);

/// On three ranks: sums of sparse tensors have gloo's bits.
void check_sparse_sums(const BackendPtr& backend, const BackendPtr& gloo);

/// Operations of two groups are waited for in any order. `make` gives the
/// tensor of the group's operation that has these values.
void check_overlap(
    const BackendPtr& one,
    const BackendPtr& other,
    const std::function<torch::Tensor(int, const torch::Tensor&)>& make);

/// On three ranks: a wait that ends too early does no harm. `signals` is of the
/// same ranks, and may be the same.
void check_early_wait(const BackendPtr& backend, const BackendPtr& signals);

/// On three ranks: an operation that nobody waits for ends by itself, calls
/// back, and may outlive what holds its tensor.
void check_left_alone(const BackendPtr& backend);

/// The all-reduce has failed for good, and with it its group.
void check_failed(c10d::Work& work, const BackendPtr& backend);

/// Of four ranks 1 and 3 do not come to a monitored barrier.
void check_monitored_barrier(const BackendPtr& backend);

/// The same ranks over gloo.
BackendPtr gloo_backend(const ProcessGroup& group);

} // namespace ddp::test
