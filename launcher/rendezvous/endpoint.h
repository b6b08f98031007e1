#pragma once

#include <optional>
#include <string>
#include <vector>

#include <launcher/rendezvous/node_options.h>
#include <launcher/sockets.h>

namespace ddp {

/// The numeric addresses of a host, IPv4 and IPv6, in the order in which they
/// are to be tried; none if it does not resolve.
std::vector<std::string> addresses_of(const std::string& host);

/// Whether it stands for all addresses of a machine.
bool is_wildcard(const std::string& numeric);

/// Whether it is "localhost" or an address of the loopback interface.
bool is_written_as_loopback(const std::string& host);

/// Whether this machine has a numeric address.
bool is_own_address(const std::string& numeric);

/// The numeric address that --bind means: itself, or an interface's, IPv4 where
/// it has one. Throws LaunchError with the interfaces that there are.
std::string address_of_interface(const std::string& name_or_address);

/// That of --bind, else the one that is given.
std::string bound_address(const NodeOptions& nodes, const std::string& given);

/// This machine's address for others: that of its default route, else the only
/// one that is no loopback's; empty if that does not tell.
std::string outward_address();

/// Whether that is the name of this machine, or means an address of it.
bool is_this_machine(const std::string& host);

/// The numeric address at which this node is to serve the log; none if another
/// node serves it. Throws LaunchError where it is told to and cannot.
std::optional<std::string> endpoint_address(const NodeOptions& nodes);

/// Listens at the endpoint's port to serve the log at endpoint_address(). None
/// where another agent of this machine does. Throws LaunchError where this node
/// is told to and cannot.
std::optional<Listener> listen_at_endpoint(
    const NodeOptions& nodes,
    const std::string& address);

/// --local-addr as a numeric address. Throws LaunchError where it has none.
std::string local_address_of(const NodeOptions& nodes);

/// Listens at a port of --port-range, or else at a free one. Throws LaunchError
/// where there is none.
Listener listen_in_range(
    const std::string& numeric_address,
    const NodeOptions& nodes);

} // namespace ddp
