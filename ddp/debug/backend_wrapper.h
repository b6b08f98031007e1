#pragma once

#include <ddp/process_group/process_group_impl.h>

namespace ddp::debug {

/// Returns `backend`, which connects the ranks of `group`. If DDP_DEBUG is not
/// "off", returns a wrapper that records or compares the backend's calls
/// instead.
c10::intrusive_ptr<c10d::Backend> wrap_backend(
    detail::ProcessGroupImpl& group,
    c10::intrusive_ptr<c10d::Backend> backend);

/// Returns the backend inside the wrapper that `wrap_backend` returned.
const c10d::Backend& unwrap_backend(const c10d::Backend& backend);

/// Logs a line about the new group, on rank 0 if DDP_DEBUG is not "off".
void log_group(const detail::ProcessGroupImpl& group);

/// Same as above, for a new Reducer.
void log_reducer(
    const ProcessGroup& group,
    const std::string& name,
    size_t parameters,
    size_t buckets);

} // namespace ddp::debug
