#pragma once

#include <ddp/backends/backend.h>
#include <ddp/detail/process_group_impl.h>

namespace ddp::detail {

/// What the backend `name` of a group gets, if it is one of all ranks.
backends::BackendOptions backend_options(
    const ProcessGroup::Impl& group,
    const std::string& name);

// Each creates a backend of a group, whose other members are filled in, and
// throws as its collectives do where the ranks are not connected within the
// timeout, or another one fails. Collective over those that `options` name.

c10::intrusive_ptr<c10d::Backend> connect_over_gloo(
    ProcessGroup::Impl& group,
    const backends::BackendOptions& options);

c10::intrusive_ptr<c10d::Backend> connect_over_shm(
    ProcessGroup::Impl& group,
    const backends::BackendOptions& options);

/// Shared memory within hosts and gloo between them. Collective over the group.
c10::intrusive_ptr<c10d::Backend> connect_by_hosts(ProcessGroup::Impl& group);

} // namespace ddp::detail
