#pragma once

#include <ddp/process_group/process_group_impl.h>

namespace ddp::debug {

/// `backend`, which connects the ranks of `group`, or, where DDP_DEBUG asks for
/// it, one that watches its calls.
c10::intrusive_ptr<c10d::Backend> wrap_backend(
    const detail::ProcessGroupImpl& group,
    c10::intrusive_ptr<c10d::Backend> backend);

/// The backend that `wrap_backend` was given.
const c10d::Backend& unwrap_backend(const c10d::Backend& backend);

/// Says on rank 0, where DDP_DEBUG asks for it, what group was formed.
void announce(const detail::ProcessGroupImpl& group);

/// The same of a Reducer.
void announce_reducer(
    const ProcessGroup& group,
    const std::string& name,
    size_t parameters,
    size_t buckets);

} // namespace ddp::debug
