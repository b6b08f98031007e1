#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>

namespace ddp::detail {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// The TCP addresses of a host, with `port`. `flags` are those of getaddrinfo.
/// `error` is its result; if it is not 0, the list is empty.
inline AddressList look_up(
    const std::string& host,
    int64_t port,
    int flags,
    int* error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  *error =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return {*error == 0 ? found : nullptr, &freeaddrinfo};
}

} // namespace ddp::detail
