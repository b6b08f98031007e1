#include <ddp/rendezvous/host.h>

#include <common/address_list.h>
#include <common/connection.h>
#include <common/host_name.h>
#include <common/numeric_address.h>
#include <common/poll_until.h>
#include <ddp/internal/check.h>

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

namespace ddp::detail {
namespace {

using Clock = std::chrono::steady_clock;

} // namespace

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> network{};
  if (readlink("/proc/self/ns/net", network.data(), network.size() - 1) < 0) {
    network[0] = '\0';
  }
  return host_name() + " " + boot + " " + network.data();
}

std::string resolve(
    const std::string& host,
    std::chrono::milliseconds timeout) {
  const auto patience =
      std::min<std::chrono::milliseconds>(timeout, std::chrono::seconds(10));
  int status = 0;
  std::string address;
  poll_for(patience, std::chrono::seconds(2), [&] {
    const auto list = look_up(host, 0, 0, &status);
    address = status == 0 ? numeric_address(list->ai_addr) : "";
    return status == 0;
  });
  DDP_CHECK_WITH(
      DistNetworkError,
      status == 0,
      "MASTER_ADDR '{}' does not resolve on host {}: {}. Set MASTER_ADDR to "
      "the name or address of rank 0's host (torchrun: by --local-addr "
      "ADDRESS on each node)",
      host,
      host_name(),
      gai_strerror(status));
  return address;
}

bool means_this_host(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1";
}

void wait_for_listener(
    const std::string& address,
    int64_t port,
    std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  int status = 0;
  const auto list = look_up(address, port, AI_NUMERICHOST, &status);
  for (GrowingBackoff pauses(std::chrono::milliseconds(200));;) {
    if (status == 0 && connect_within(*list, deadline - Clock::now())) {
      return;
    }
    const std::string reason = std::strerror(errno);
    const auto pause = pauses.next();
    DDP_CHECK_WITH(DistNetworkError, Clock::now() + pause < deadline, reason);
    std::this_thread::sleep_for(pause);
  }
}

bool answers(
    const std::string& address,
    int64_t port,
    std::chrono::milliseconds timeout) {
  int status = 0;
  const auto list = look_up(address, port, AI_NUMERICHOST, &status);
  return status == 0 &&
      (connect_within(*list, timeout) || errno == ECONNREFUSED);
}

int listen_at(const std::string& address, int64_t port) {
  int status = 0;
  const auto list = look_up(address, port, AI_NUMERICHOST, &status);
  int fd = -1;
  errno = EADDRNOTAVAIL;
  if (status == 0) {
    fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const int off = 0; // "::" stands for IPv4 addresses too
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (fd < 0 || bind(fd, list->ai_addr, list->ai_addrlen) != 0 ||
      listen(fd, SOMAXCONN) != 0) {
    const std::string reason = std::strerror(errno);
    if (fd >= 0) {
      close(fd);
    }
    DDP_THROW(
        DistNetworkError,
        "rank 0 cannot listen on {} port {}: {}. If another job uses the port, "
        "set MASTER_PORT to a free port; only one process may have RANK=0",
        address,
        port,
        reason);
  }
  return fd;
}

int listen_on_all_interfaces(int64_t port) {
  const FileDescriptor probe(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return listen_at(probe ? "::" : "0.0.0.0", port); // if the kernel has IPv6
}

int64_t port_of(int descriptor) {
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &length);
  // The port has the same offset in both families.
  return ntohs(reinterpret_cast<sockaddr_in*>(&own)->sin_port);
}

} // namespace ddp::detail
