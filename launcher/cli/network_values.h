#pragma once

#include <optional>
#include <string>
#include <utility>

#include <launcher/cli/options/option.h>
#include <launcher/sockets.h>

namespace ddp {

/// "HOST", "HOST:N", "[::1]:N" or "::1", taken apart.
struct HostText {
  std::string host;
  std::string number; // with its colon; empty where there is none
};

/// None where there is a bracket in the wrong place.
std::optional<HostText> split_host(const std::string& text);

/// "HOST", "HOST:PORT", "[::1]:29400" or "::1"; without a port `default_port`.
/// Throws LaunchError (exit code 2) for other texts, and for addresses that
/// nobody can connect to.
SocketAddress endpoint_of(const OptionValue& value, int default_port);

/// Refuses "", 0.0.0.0 and ::.
void check_host(const OptionValue& value, const std::string& host);

/// "29500-29600".
std::pair<int, int> port_range_of(const OptionValue& value);

/// "node0:29400", "[::1]:29400".
std::string describe_endpoint(const std::string& host, int port);

} // namespace ddp
