#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <string>

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

} // namespace ddp::detail
