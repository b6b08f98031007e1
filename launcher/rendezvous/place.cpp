#include <launcher/rendezvous/place.h>

#include <vector>

#include <common/scheduler/launch_error.h>
#include <launcher/rendezvous/endpoint.h>

namespace ddp {
namespace {

std::string resolved(const std::string& local_address) {
  if (local_address.empty()) {
    return "";
  }
  const auto addresses = addresses_of(local_address);
  if (addresses.empty()) {
    throw LaunchError(
        kExitUsage, "--local-addr " + local_address + ": does not resolve");
  }
  return addresses.front();
}

} // namespace

Place find_place(const NodeOptions& nodes) {
  Place place;
  place.local_address = resolved(nodes.local_address);
  const bool may_serve = nodes.hosts_log.value_or(true);
  std::optional<std::string> address;
  try {
    address = endpoint_address(nodes);
    place.is_endpoint_here = address.has_value();
  } catch (const LaunchError&) {
    place.is_endpoint_here = true; // though nobody reaches it there
    if (may_serve) {
      throw;
    }
  }
  if (may_serve && address) {
    place.listener = listen_at_endpoint(nodes, *address);
  }
  return place;
}

} // namespace ddp
