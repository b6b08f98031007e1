#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <launcher/rendezvous/log/log_engine.h>
#include <launcher/rendezvous/node_options.h>

namespace ddp {

/// What a helper of SharedLog is started with.
struct HelperOptions {
  int channel = -1; // to the agent
  std::string member;
  std::chrono::milliseconds beat_interval{0};
  std::vector<SocketAddress> endpoints; // names or addresses
  /// How this node meets others there: `hosts_log`, `bind`, `local_address`.
  NodeOptions nodes;
};

/// As the end of a command line, and back.
std::vector<std::string> helper_words(const HelperOptions& options);
HelperOptions helper_options(const std::vector<std::string>& words);

/// The life of a helper process of SharedLog: waits for the log, then carries
/// entries and beats between it and the agent until one of them is gone.
[[noreturn]] void run_log_helper(
    LogEngine& engine,
    const HelperOptions& options);

} // namespace ddp
