#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>

namespace ddp::detail {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// The TCP addresses of `host` with `port`. `flags` are getaddrinfo's ai_flags.
/// `error` receives getaddrinfo's result; the list is empty if the result is
/// not 0.
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
