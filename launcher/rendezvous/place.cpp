#include <launcher/rendezvous/place.h>

#include <future>
#include <vector>

#include <common/scheduler/launch_error.h>
#include <launcher/rendezvous/endpoint.h>
#include <launcher/rendezvous/route.h>

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

// Whether the job goes on at another host. All are asked at once.
bool has_moved(const NodeOptions& nodes) {
  std::vector<std::future<bool>> answers;
  for (const std::string& host : nodes.other_hosts) {
    answers.push_back(std::async(std::launch::async, [&nodes, &host] {
      std::string why;
      return find_route(host, nodes.port, &why).has_value();
    }));
  }
  bool has_moved = false;
  for (auto& each : answers) {
    has_moved = each.get() || has_moved;
  }
  return has_moved;
}

} // namespace

Place find_place(const NodeOptions& nodes) {
  Place place;
  place.local_address = resolved(nodes.local_address);
  // A node that comes back does not begin another log while the job goes on
  // elsewhere.
  const bool may_serve = nodes.hosts_log.value_or(true) && !has_moved(nodes);
  try {
    const auto address = endpoint_address(nodes);
    place.is_endpoint_here = address.has_value();
    place.address = address.value_or("");
  } catch (const LaunchError&) {
    place.is_endpoint_here = true; // though nobody reaches it there
    if (may_serve) {
      throw;
    }
  }
  if (may_serve && place.is_endpoint_here) {
    place.listener = listen_at_endpoint(nodes, place.address);
  }
  return place;
}

} // namespace ddp
