#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ddp::detail {

/// Where processes of one host reach each other.
inline constexpr const char* kLoopback = "127.0.0.1";

/// Text that is equal for exactly those processes that can reach each other
/// over the loopback interface: boot, host name and network namespace.
std::string host_identity();

/// The numeric address of a host. A name that does not exist is an error at
/// once; while a name server does not answer, it is asked again for up to 10 s,
/// or `timeout` if that is less. Throws `c10::DistNetworkError`.
std::string resolve(const std::string& host, std::chrono::milliseconds timeout);

/// Whether a numeric address means, on any host, that host itself.
bool is_loopback(const std::string& address);

/// Whether a name or address means, on any host, that host itself.
bool means_this_host(const std::string& host);

/// Waits until something listens at a numeric address. Throws
/// `c10::DistNetworkError` with the last attempt's reason.
void wait_for_listener(
    const std::string& address,
    int64_t port,
    std::chrono::milliseconds timeout);

/// Whether a host answers at a numeric address, also if it refuses.
bool answers(
    const std::string& address,
    int64_t port,
    std::chrono::milliseconds timeout);

/// A socket that listens at a numeric address. Throws `c10::DistNetworkError`.
int listen_at(const std::string& address, int64_t port);

/// The port that a listening socket is bound to.
int64_t port_of(int descriptor);

/// Takes over a listening socket that was inherited: checks that it is one,
/// bound to `port`, and keeps later child processes from inheriting it. Returns
/// whether the descriptor is good.
bool adopt_listener(int descriptor, int64_t port);

} // namespace ddp::detail
