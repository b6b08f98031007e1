#pragma once

#include <ddp/backends/common/backend.h>
#include <ddp/process_group/process_group_impl.h>

#include <functional>

namespace ddp::detail {

/// What the backend `name` of a group gets, if it is one of all ranks.
backends::BackendOptions backend_options(
    const ProcessGroupImpl& group,
    const std::string& name);

/// Says which rank's process has ended, or nothing.
using LivenessCheck = std::function<std::string()>;

/// `connect` for a group whose ranks a group already knows.
void connect(ProcessGroupImpl& impl, const LivenessCheck& check_liveness);

/// Whether one of these ranks has ended, where the backend can see that.
std::string ended_rank(
    const ProcessGroupImpl& group,
    const std::vector<int64_t>& ranks);

// Each creates a backend of a group, whose other members are filled in, and
// throws as its collectives do where the ranks are not connected within the
// timeout, or another one fails. Collective over those that `options` name.

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
