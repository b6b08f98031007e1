#pragma once

#include <optional>
#include <string>
#include <vector>

#include <launcher/rendezvous/node_options.h>
#include <launcher/sockets.h>

namespace ddp {

/// The numeric addresses of a host, IPv4 and IPv6, in the order in which to try
/// them; none if the name does not resolve.
std::vector<std::string> addresses_of(const std::string& host);

/// Whether the address is the wildcard, which means all addresses of a machine.
bool is_wildcard(const std::string& numeric);

/// Whether `host` is "localhost" or an address of the loopback interface.
bool is_written_as_loopback(const std::string& host);

/// Whether this machine has the address `numeric`.
bool is_own_address(const std::string& numeric);

/// The numeric address for --bind: the given address, or the address of an
/// interface, preferably IPv4. Throws a LaunchError that lists the interfaces.
std::string address_of_interface(const std::string& name_or_address);

/// The address of --bind, otherwise `given`.
std::string bound_address(const NodeOptions& nodes, const std::string& given);

/// The address at which others reach this machine: the address of its default
/// route, otherwise its only address that is not a loopback address; empty if
/// the machine has none or several.
std::string outward_address();

/// Whether `host` is the name of this machine, or resolves to one of its
/// addresses.
bool is_this_machine(const std::string& host);

/// The numeric address at which this node serves the log; none if another node
/// serves the log. Throws LaunchError if the options require this node to serve
/// the log but it cannot.
std::optional<std::string> endpoint_address(const NodeOptions& nodes);

/// Listens at the endpoint's port to serve the log at endpoint_address().
/// Returns none if another agent of this machine serves the log. Throws
/// LaunchError if the options require this node to serve the log but it cannot.
std::optional<Listener> listen_at_endpoint(
    const NodeOptions& nodes,
    const std::string& address);

/// --local-addr as a numeric address; for the name of this machine, an address
/// at which others reach it. Throws LaunchError if there is no such address.
std::string local_address_of(const NodeOptions& nodes);

/// Listens at a port of --port-range, or else at any free port. Throws
/// LaunchError if none is free.
Listener listen_in_range(
    const std::string& numeric_address,
    const NodeOptions& nodes);

} // namespace ddp
