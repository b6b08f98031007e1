#pragma once

#include <ddp/environment/environment.h>

#include <vector>

namespace ddp::detail {

/// This host's numeric addresses by which others may reach it, IPv4 first.
std::vector<std::string> own_addresses();

/// The numeric address of a network interface of this host: its IPv4 address
/// where it has one. Throws `c10::ValueError`, with the interfaces that there
/// are, where none has that name, or it is down or has no address.
std::string interface_address(const std::string& interface);

/// Makes NCCL talk over the interface that the environment names, by the
/// variable NCCL_SOCKET_IFNAME; what the user has set there stays. Where
/// `master_address`, MASTER_ADDR's numeric address, is the interface's, rank
/// 0's store listens there only. Does nothing if no interface is named. Throws
/// as `interface_address`.
void use_interface(
    LaunchEnvironment& environment,
    const std::string& master_address);

} // namespace ddp::detail
