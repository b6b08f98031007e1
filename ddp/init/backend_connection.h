#pragma once

#include <ddp/backends/common/backend.h>
#include <ddp/process_group/process_group_impl.h>

#include <functional>

namespace ddp::detail {

/// The options for a backend `name` that connects all ranks of a group.
backends::BackendOptions backend_options(
    const ProcessGroupImpl& group,
    const std::string& name);

/// Returns a message about a rank whose process has ended, or an empty string.
using LivenessCheck = std::function<std::string()>;

/// Same as `connect` in process_group_impl.h, for a group made from another
/// group.
void connect(ProcessGroupImpl& impl, const LivenessCheck& check_liveness);

/// Returns a message about one of these ranks that has ended, if the backend
/// can detect the end; otherwise an empty string.
std::string ended_rank(
    const ProcessGroupImpl& group,
    const std::vector<int64_t>& ranks);

// Each function creates the backend for a `ProcessGroupImpl` whose other data
// members are already set. If the ranks are not connected within the timeout,
// or another rank fails, the function throws like the group's collectives.
// Collective over the ranks in `options`.

c10::intrusive_ptr<c10d::Backend> connect_over_gloo(
    ProcessGroupImpl& group,
    const backends::BackendOptions& options);

c10::intrusive_ptr<c10d::Backend> connect_over_shm(
    ProcessGroupImpl& group,
    const backends::BackendOptions& options,
    const LivenessCheck& check_liveness = nullptr);

/// Connects ranks over shared memory within hosts and over gloo between hosts.
/// Collective over the group.
c10::intrusive_ptr<c10d::Backend> connect_by_hosts(ProcessGroupImpl& group);

} // namespace ddp::detail
