#pragma once

#include <ddp/process_group/process_group_impl.h>

namespace ddp::detail {

/// Publishes the address at which this rank will listen for the other ranks of
/// a group that spans several hosts.
void publish_address(const ProcessGroupImpl& group);

/// Removes the addresses of connected ranks from the store, so that many groups
/// leave no keys: those of publish_address and of gloo. To be called when all
/// ranks are connected.
void forget_addresses(const ProcessGroupImpl& group);

/// Returns a message for ranks that could not connect in time. The message
/// names up to three ranks whose hosts do not answer this host. Empty if all
/// hosts answer, or if the store does not answer. Takes at most a few seconds.
std::string unreachable_hosts(const ProcessGroupImpl& group);

} // namespace ddp::detail
