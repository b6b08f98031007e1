#pragma once

#include <ddp/process_group/process_group_impl.h>

namespace ddp::detail {

/// Publishes the address at which this rank will listen for the other ranks of
/// a group over several hosts.
void publish_address(const ProcessGroupImpl& group);

/// For ranks that could not connect in time: a text that names up to three
/// ranks whose hosts do not answer this one. Empty if all answer, or if the
/// store does not answer. Takes at most a few seconds.
std::string unreachable_hosts(const ProcessGroupImpl& group);

} // namespace ddp::detail
