#pragma once

#include <ddp/backends/backend.h>
#include <ddp/detail/process_group_impl.h>

namespace ddp::detail {

/// Creates the gloo backend of a group, whose other members are filled in, and
/// throws as its collectives do where the ranks are not connected within the
/// timeout, or another one fails. Collective.
c10::intrusive_ptr<c10d::Backend> connect_over_gloo(
    ProcessGroup::Impl& group,
    const backends::BackendOptions& options);

} // namespace ddp::detail
