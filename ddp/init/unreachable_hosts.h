#pragma once

#include <ddp/process_group/process_group_impl.h>

namespace ddp::detail {

/// Tells the other ranks of a group over several hosts where this one is about
/// to listen.
void publish_address(const ProcessGroupImpl& group);

/// For ranks that could not connect in time: names up to three ranks whose
/// hosts do not answer this one. Empty if all answer, or where the store does
/// not. Takes a few seconds at most.
std::string unreachable_hosts(const ProcessGroupImpl& group);

} // namespace ddp::detail
