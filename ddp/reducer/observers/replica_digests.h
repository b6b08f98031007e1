#pragma once

#include <ddp/module_state.h>
#include <ddp/process_group.h>

namespace c10d {
class Store;
}

// Each rank leaves digests in the store, and the last one to come compares all.
// Nobody waits, nothing throws, and where a rank does not come nothing is said.
namespace ddp::detail {

/// Adds a gradient of the first backwards to `digest`, in any order.
void add_to_digest(uint64_t& digest, const at::Tensor& gradient);

/// Warns where all ranks have one digest of their first gradients: then they
/// had the same data.
void compare_first_gradients(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroup& group,
    uint64_t digest);

/// Warns where ranks that have trained for `step` steps hold other parameters,
/// by the first that differs. Costs a pass over them. The process that hosts
/// the store gives the others up to a second to come.
void compare_last_parameters(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroup& group,
    const NamedTensors& parameters,
    int64_t step,
    bool hosts_store);

} // namespace ddp::detail
