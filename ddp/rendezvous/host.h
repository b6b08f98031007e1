#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ddp::detail {

/// The address at which processes of one host reach each other.
inline constexpr const char* kLoopback = "127.0.0.1";

/// Returns text that is equal for two processes if and only if the processes
/// can reach each other over the loopback interface: boot, host name and
/// network namespace.
std::string host_identity();

/// Returns the numeric address of a host. Looks its name up for 10 s, or for
/// `timeout` if shorter, since the name of a container that starts at the same
/// time may not exist yet. Throws `c10::DistNetworkError`.
std::string resolve(const std::string& host, std::chrono::milliseconds timeout);

/// Whether a name or address means the local host, on any host.
bool means_this_host(const std::string& host);

/// Waits until a process listens at a numeric address. Throws
/// `c10::DistNetworkError` with the last attempt's reason.
void wait_for_listener(
    const std::string& address,
    int64_t port,
    std::chrono::milliseconds timeout);

/// Whether a host answers at a numeric address, even by refusing the
/// connection.
bool answers(
    const std::string& address,
    int64_t port,
    std::chrono::milliseconds timeout);

/// Returns a socket that listens at a numeric address. Throws
/// `c10::DistNetworkError`.
int listen_at(const std::string& address, int64_t port);

/// As above, at all IPv4 and IPv6 addresses of this host.
int listen_on_all_interfaces(int64_t port);

/// The port to which a listening socket is bound.
int64_t port_of(int descriptor);

} // namespace ddp::detail
