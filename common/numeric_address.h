#pragma once

#include <common/address_list.h>
#include <common/file_descriptor.h>

#include <netinet/in.h>

#include <array>

namespace ddp::detail {

/// An IPv4 or IPv6 address as text.
inline std::string numeric_address(const sockaddr* address) {
  const socklen_t length = address->sa_family == AF_INET ? sizeof(sockaddr_in)
                                                         : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> text{};
  getnameinfo(
      address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

/// Whether a numeric address means the local host, on any host.
inline bool is_loopback(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1";
}

/// The local address from which this host reaches the numeric address
/// `address`, and at which the other host can reach this one; empty if there is
/// no route. Queries only the routing table, and sends nothing.
inline std::string address_towards(const std::string& address) {
  constexpr int kAnyPort = 9;
  int error = 0;
  const auto list = look_up(address, kAnyPort, AI_NUMERICHOST, &error);
  if (error != 0) {
    return "";
  }
  const FileDescriptor probe(
      socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  auto* generic = reinterpret_cast<sockaddr*>(&own);
  const bool known = probe &&
      connect(probe.get(), list->ai_addr, list->ai_addrlen) == 0 &&
      getsockname(probe.get(), generic, &length) == 0;
  return known ? numeric_address(generic) : "";
}

} // namespace ddp::detail
