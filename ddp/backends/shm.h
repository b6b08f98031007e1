#pragma once

#include <ddp/backends/common/backend.h>

#include <cstdint>
#include <vector>

namespace ddp::backends::shm {

/// Why this process cannot share memory with others of its host, `ranks` in
/// all; empty if it can.
std::string unavailable(int64_t ranks);

/// A backend of ours for CPU tensors of ranks that share a host: memory that
/// all of them map, which is gone with the processes however they end. Needs
/// Linux 5.3. Collective.
c10::intrusive_ptr<c10d::Backend> create(const BackendOptions& options);

/// Which of these ranks of a backend of `create` has ended, in words; empty
/// where none has.
std::string ended_rank(
    const c10d::Backend& backend,
    const std::vector<int64_t>& ranks);

} // namespace ddp::backends::shm
