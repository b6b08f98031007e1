#pragma once

#include <optional>
#include <string>

#include <launcher/listener.h>
#include <launcher/rendezvous/node_options.h>

namespace ddp {

/// Where a node is, as the endpoint, other hosts and the name server say.
struct Place {
  /// Whether the endpoint is here.
  bool is_endpoint_here = false;
  /// Where it is to serve the log now.
  std::optional<Listener> listener;
  /// --local-addr as a numeric address; empty where it was not given.
  std::string local_address;
};

/// Finds it: resolves names, which takes seconds where name servers do not
/// answer. Throws LaunchError.
Place find_place(const NodeOptions& nodes);

} // namespace ddp
