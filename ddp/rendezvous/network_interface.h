#pragma once

#include <ddp/environment/environment.h>

#include <vector>

namespace ddp::detail {

/// The numeric addresses at which other hosts may reach this host, IPv4 first.
std::vector<std::string> own_addresses();

/// The numeric address of a network interface of this host; the IPv4 address if
/// the interface has one. Throws a `c10::ValueError` that lists the interfaces
/// if no interface has this name, or if the interface is down or has no
/// address.
std::string interface_address(const std::string& interface);

/// Makes NCCL use the interface that the environment names, through the
/// variable NCCL_SOCKET_IFNAME, unless the user has set it. If
/// `master_address`, the numeric address of MASTER_ADDR, is one of the
/// interface's, rank 0's store listens only on this address. Does nothing if
/// the environment names no interface. Throws like `interface_address`.
void use_interface(
    LaunchEnvironment& environment,
    const std::string& master_address);

} // namespace ddp::detail
