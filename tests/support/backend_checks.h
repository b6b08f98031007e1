#pragma once

#include <ddp/process_group.h>
#include <tests/support/backend_values.h>

// Checks that every backend of ddp must pass, on any number of ranks.

namespace ddp::test {

/// Collectives that move tensors of any dtype, in lists that may differ in
/// length.
void check_movement(const BackendPtr& backend);

/// Broadcasts and all-gathers of any dtype, and operations in place.
void check_any_dtype(const BackendPtr& backend);

/// All-to-alls in equal and unequal splits and, if `with_lists`, of lists.
void check_all_to_all(
    const BackendPtr& backend,
    torch::ScalarType dtype,
    bool with_lists = true);

/// On two ranks or more: messages that match by rank and tag.
void check_tagged_messages(const BackendPtr& backend);

/// All-reduce and reduce, with each operation on each dtype.
void check_reductions(const BackendPtr& backend);

/// Each rank gets the reduction of `values_of` all ranks by each operation. The
/// others keep their values, except over gloo itself, which overwrites them.
void check_reduce(const BackendPtr& backend, const std::vector<Kind>& kinds);

/// A sum of sparse tensors is that of dense ones.
void check_sparse_rows(const BackendPtr& backend);

void check_same_sparse(const torch::Tensor& a, const torch::Tensor& b);

/// On three ranks: sums of sparse tensors are bit-identical to gloo's.
void check_sparse_sums(const BackendPtr& backend, const BackendPtr& gloo);

/// Waits for operations of two groups in any order. `make` returns the tensor
/// of the operation with the given number and values.
void check_overlap(
    const BackendPtr& one,
    const BackendPtr& other,
    const std::function<torch::Tensor(int, const torch::Tensor&)>& make);

/// On three ranks: a wait that ends too early does no harm. `signals` is a
/// backend of the same ranks, possibly the same one.
void check_early_wait(const BackendPtr& backend, const BackendPtr& signals);

/// On three ranks: an operation without a wait ends by itself, runs its
/// callback, and may outlive the owner of its tensor.
void check_left_alone(const BackendPtr& backend);

/// Requires that the all-reduce and its group have failed permanently.
void check_failed(c10d::Work& work, const BackendPtr& backend);

/// On four ranks: ranks 1 and 3 do not enter a monitored barrier, which names
/// both even if `wait_all_ranks` is off.
void check_monitored_barrier(const BackendPtr& backend, bool wait_all_ranks);

/// A gloo backend of the same ranks.
BackendPtr gloo_backend(const ProcessGroup& group);

} // namespace ddp::test
