#pragma once

#include <ddp/backends/common/backend.h>
#include <ddp/process_group/process_group_impl.h>

#include <functional>

namespace ddp::detail {

/// The options of the backend `name` of a group, if it connects all ranks.
backends::BackendOptions backend_options(
    const ProcessGroupImpl& group,
    const std::string& name);

/// Returns a text about a rank whose process has ended, or an empty text.
using LivenessCheck = std::function<std::string()>;

/// As `connect` of process_group_impl.h, for a group whose ranks are already
/// known from another group.
void connect(ProcessGroupImpl& impl, const LivenessCheck& check_liveness);

/// A text about one of these ranks that has ended, if the backend can detect
/// it; otherwise an empty text.
std::string ended_rank(
    const ProcessGroupImpl& group,
    const std::vector<int64_t>& ranks);

// Each function creates a backend of a group whose other members are set. It
// throws like the group's collectives if the ranks are not connected within the
// timeout, or if another rank fails. Collective over the ranks that `options`
// name.

c10::intrusive_ptr<c10d::Backend> connect_over_gloo(
    ProcessGroupImpl& group,
    const backends::BackendOptions& options);

c10::intrusive_ptr<c10d::Backend> connect_over_shm(
    ProcessGroupImpl& group,
    const backends::BackendOptions& options,
    const LivenessCheck& check_liveness = nullptr);

/// Shared memory within hosts and gloo between them. Collective over the group.
c10::intrusive_ptr<c10d::Backend> connect_by_hosts(ProcessGroupImpl& group);

} // namespace ddp::detail
