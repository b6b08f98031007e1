#include <launcher/rendezvous/endpoint.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <common/address_list.h>
#include <common/host_name.h>
#include <common/numeric_address.h>
#include <common/scheduler/launch_error.h>

namespace ddp {
namespace {

using detail::address_towards;
using detail::host_name;
using detail::is_loopback;
using detail::look_up;
using detail::numeric_address;
using Addresses = std::vector<std::string>;

struct InterfaceAddress {
  std::string interface;
  std::string address;
};

// The addresses of interfaces that are up: link-local ones last, IPv4 before
// IPv6.
std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) {
    return {};
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(
      found, &freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr != nullptr && each->ifa_addr->sa_family == family &&
          (each->ifa_flags & IFF_UP) != 0) {
        addresses.push_back({each->ifa_name, numeric_address(each->ifa_addr)});
      }
    }
  }
  std::stable_partition(
      addresses.begin(), addresses.end(), [](const InterfaceAddress& each) {
        return each.address.find('%') == std::string::npos; // not link-local
      });
  return addresses;
}

Addresses addresses_by(const std::string& host, int flags) {
  int error = 0;
  const auto list = look_up(host, 0, flags, &error);
  Addresses addresses;
  for (const addrinfo* each = list.get(); each != nullptr;
       each = each->ai_next) {
    const std::string text = numeric_address(each->ai_addr);
    if (std::find(addresses.begin(), addresses.end(), text) ==
        addresses.end()) {
      addresses.push_back(text);
    }
  }
  return addresses;
}

// A numeric address as the system writes it; empty for a name.
std::string normalized(const std::string& address) {
  const Addresses found = addresses_by(address, AI_NUMERICHOST);
  return found.empty() ? "" : found.front();
}

bool is_here(const std::string& host, const Addresses& addresses) {
  return host == host_name() ||
      std::any_of(addresses.begin(), addresses.end(), is_own_address);
}

std::string joined(const Addresses& addresses) {
  std::string text;
  for (const std::string& each : addresses) {
    text += (text.empty() ? "" : ", ") + each;
  }
  return text.empty() ? "does not resolve" : text;
}

[[noreturn]] void reject_to_serve(
    const NodeOptions& nodes,
    const Addresses& addresses,
    const char* why) {
  throw LaunchError(
      kExitInternal,
      "this node must serve the nodes' rendezvous at " +
          describe_endpoint(nodes.host, nodes.port) + ", but " + why + " (" +
          nodes.host + ": " + joined(addresses) +
          "); --bind ADDRESS sets the address to listen on");
}

std::string address_to_serve_at(
    const NodeOptions& nodes,
    const Addresses& addresses) {
  if (!nodes.bind.empty()) {
    return address_of_interface(nodes.bind);
  }
  // Debian's installer gives the machine's own name the address 127.0.1.1, and
  // in Kubernetes a pod's name resolves only once the pod is ready, and may
  // lead to an earlier pod until then.
  bool is_this_machine = addresses.empty() || nodes.host == host_name() ||
      (std::getenv("KUBERNETES_SERVICE_HOST") != nullptr &&
       nodes.host.rfind(host_name() + ".", 0) == 0);
  const bool for_this_machine_alone = is_written_as_loopback(nodes.host);
  for (const std::string& each : addresses) {
    const bool is_own = is_own_address(each);
    if (is_own && is_loopback(each) == for_this_machine_alone) {
      return each;
    }
    is_this_machine = is_this_machine || is_own;
  }
  if (!is_this_machine) {
    reject_to_serve(nodes, addresses, "that is not one of its addresses");
  }
  std::string outward = outward_address();
  if (outward.empty()) {
    reject_to_serve(
        nodes, addresses, "the address at which others reach it is unknown");
  }
  return outward;
}

} // namespace

bool is_wildcard(const std::string& address) {
  return address == "0.0.0.0" || address == "::";
}

bool is_written_as_loopback(const std::string& host) {
  return host == "localhost" || is_loopback(normalized(host));
}

std::vector<std::string> addresses_of(const std::string& host) {
  return addresses_by(host, 0);
}

bool is_own_address(const std::string& numeric) {
  const std::string address = normalized(numeric);
  const auto own = interface_addresses();
  return address.compare(0, 4, "127.") == 0 ||
      std::any_of(own.begin(), own.end(), [&](const InterfaceAddress& each) {
           return each.address == address;
         });
}

std::string address_of_interface(const std::string& name_or_address) {
  std::string numeric = normalized(name_or_address);
  if (!numeric.empty()) {
    return numeric;
  }
  std::string known;
  for (const auto& [interface, address] : interface_addresses()) {
    if (interface == name_or_address) {
      return address;
    }
    known.append(known.empty() ? "" : ", ").append(interface);
    known.append(" (").append(address).append(")");
  }
  throw LaunchError(
      kExitUsage,
      "--bind " + name_or_address +
          ": not an address, nor an interface that is up and has an address; "
          "available: " +
          known);
}

std::string bound_address(const NodeOptions& nodes, const std::string& given) {
  return nodes.bind.empty() ? given : address_of_interface(nodes.bind);
}

std::string outward_address() {
  // Addresses of networks for documentation, to which only a default route
  // leads.
  for (const char* far : {"198.51.100.1", "2001:db8::1"}) {
    std::string address = address_towards(far);
    if (!address.empty() && !is_loopback(address)) {
      return address;
    }
  }
  std::set<std::string> candidates;
  for (const InterfaceAddress& each : interface_addresses()) {
    if (!is_loopback(each.address) &&
        each.address.find('%') == std::string::npos) {
      candidates.insert(each.address);
    }
  }
  return candidates.size() == 1 ? *candidates.begin() : "";
}

bool is_this_machine(const std::string& host) {
  return is_here(host, addresses_of(host));
}

std::optional<std::string> endpoint_address(const NodeOptions& nodes) {
  const bool is_told = nodes.hosts_log.has_value();
  if (is_told && !*nodes.hosts_log) {
    return std::nullopt;
  }
  const Addresses addresses =
      nodes.host.empty() ? Addresses() : addresses_of(nodes.host);
  if (!is_told && !is_here(nodes.host, addresses)) {
    return std::nullopt;
  }
  return address_to_serve_at(nodes, addresses);
}

std::string local_address_of(const NodeOptions& nodes) {
  const Addresses addresses = addresses_of(nodes.local_address);
  const bool for_this_machine_alone =
      is_written_as_loopback(nodes.local_address);
  for (const std::string& each : addresses) {
    if (is_loopback(each) == for_this_machine_alone) {
      return each;
    }
  }
  std::string outward = addresses.empty() ? "" : outward_address();
  if (outward.empty()) {
    throw LaunchError(
        kExitUsage,
        "--local-addr " + nodes.local_address + ": " + joined(addresses) +
            (addresses.empty() ? "" : " leads other nodes to themselves"));
  }
  return outward;
}

std::optional<Listener> listen_at_endpoint(
    const NodeOptions& nodes,
    const std::string& address) {
  if (auto listener = try_listen_on(address, nodes.port)) {
    return listener;
  }
  if (!nodes.hosts_log.has_value() && errno == EADDRINUSE) {
    return std::nullopt; // another agent of this machine serves it
  }
  throw LaunchError(
      kExitInternal,
      "cannot serve the nodes' rendezvous at " +
          describe_endpoint(address, nodes.port) + ": " + std::strerror(errno));
}

Listener listen_in_range(
    const std::string& numeric_address,
    const NodeOptions& nodes) {
  for (int port = nodes.first_port; port <= nodes.last_port; ++port) {
    if (auto listener = try_listen_on(numeric_address, port)) {
      return std::move(*listener);
    }
  }
  const std::string error = std::strerror(errno);
  const bool has_range = nodes.first_port > 0;
  throw LaunchError(
      kExitInternal,
      "cannot listen on " + numeric_address + ": " + error +
          (has_range ? " (--port-range " + std::to_string(nodes.first_port) +
                   "-" + std::to_string(nodes.last_port) + ")"
                     : ""));
}

} // namespace ddp
