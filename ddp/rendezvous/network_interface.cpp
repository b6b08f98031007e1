#include <ddp/rendezvous/network_interface.h>

#include <common/host_name.h>
#include <common/numeric_address.h>
#include <ddp/internal/check.h>

#include <c10/util/env.h>

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <sstream>

namespace ddp::detail {
namespace {

struct Interface {
  bool up = false;
  /// Those that other hosts can use, IPv4 before IPv6.
  std::vector<std::string> addresses;
};

using Interfaces = std::map<std::string, Interface>;

/// Whether an address has the same meaning on other hosts. The meaning of a
/// link-local address depends on the interface.
bool usable(const sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    return !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
  }
  return address->sa_family == AF_INET;
}

using Entries = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

Entries entries() {
  ifaddrs* first = nullptr;
  DDP_CHECK(
      getifaddrs(&first) == 0,
      "the network interfaces of host {} cannot be listed: {}",
      host_name(),
      std::strerror(errno));
  return {first, &freeifaddrs};
}

/// Calls `take` with each entry whose address other hosts can use: IPv4 before
/// IPv6.
template <typename Take>
void for_each_usable(const ifaddrs* list, const Take& take) {
  for (const int family : {AF_INET, AF_INET6}) {
    for (const auto* entry = list; entry; entry = entry->ifa_next) {
      if (entry->ifa_addr && entry->ifa_addr->sa_family == family &&
          usable(entry->ifa_addr)) {
        take(*entry);
      }
    }
  }
}

Interfaces list_interfaces() {
  Interfaces found;
  const auto list = entries();
  for (const auto* entry = list.get(); entry; entry = entry->ifa_next) {
    // NCCL skips an interface that is up without a carrier.
    found[entry->ifa_name].up =
        (entry->ifa_flags & IFF_UP) && (entry->ifa_flags & IFF_RUNNING);
  }
  for_each_usable(list.get(), [&](const ifaddrs& entry) {
    found[entry.ifa_name].addresses.push_back(numeric_address(entry.ifa_addr));
  });
  return found;
}

/// Empty if the interface can be used.
const char* fault_of(const Interface& interface) {
  return !interface.up              ? "is down"
      : interface.addresses.empty() ? "has no address"
                                    : "";
}

std::string describe(const Interfaces& interfaces) {
  std::ostringstream text;
  const char* separator = "";
  for (const auto& [name, interface] : interfaces) {
    const std::string fault = fault_of(interface);
    text << separator << name << " ("
         << (fault.empty() ? interface.addresses.front() : fault) << ")";
    separator = ", ";
  }
  return text.str();
}

std::vector<std::string> usable_addresses(const std::string& interface) {
  const auto interfaces = list_interfaces();
  const auto found = interfaces.find(interface);
  const std::string fault =
      found == interfaces.end() ? "does not exist" : fault_of(found->second);
  DDP_CHECK_VALUE(
      fault.empty(),
      "interface '{}' (ProcessGroupOptions::interface or DDP_INTERFACE) {} on "
      "host {}, which has: {}",
      interface,
      fault,
      host_name(),
      describe(interfaces));
  return found->second.addresses;
}

} // namespace

std::vector<std::string> own_addresses() {
  std::vector<std::string> result;
  const auto list = entries();
  for_each_usable(list.get(), [&](const ifaddrs& entry) {
    if ((entry.ifa_flags & IFF_UP) && !(entry.ifa_flags & IFF_LOOPBACK)) {
      result.push_back(numeric_address(entry.ifa_addr));
    }
  });
  return result;
}

std::string interface_address(const std::string& interface) {
  return usable_addresses(interface).front();
}

void use_interface(
    LaunchEnvironment& environment,
    const std::string& master_address) {
  const auto& interface = environment.interface;
  if (interface.empty()) {
    return;
  }
  const auto own = usable_addresses(interface);
  // NCCL has no other setting, and reads this one once in a process. Without
  // "=", eth1 would also match eth10.
  if (c10::utils::get_env("NCCL_SOCKET_IFNAME").value_or("").empty()) {
    c10::utils::set_env("NCCL_SOCKET_IFNAME", ("=" + interface).c_str());
  }
  environment.meets_at_interface =
      std::find(own.begin(), own.end(), master_address) != own.end();
}

} // namespace ddp::detail
