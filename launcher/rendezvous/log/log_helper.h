#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <launcher/rendezvous/log/log_engine.h>

namespace ddp {

/// What a helper of SharedLog is started with.
struct HelperOptions {
  int channel = -1; // to the agent
  int listener = -1; // to serve the log at; -1 for none
  std::string member;
  std::chrono::milliseconds beat_interval{0};
  std::vector<SocketAddress> endpoints; // names or addresses
};

/// Takes them from a command line, of which they are the end: CHANNEL LISTENER
/// MEMBER BEAT_MS [HOST PORT]...
HelperOptions helper_options(const std::vector<std::string>& words);

/// The life of a helper process of SharedLog: waits for the log, then carries
/// entries and beats between it and the agent until one of them is gone.
[[noreturn]] void run_log_helper(
    LogEngine& engine,
    const HelperOptions& options);

} // namespace ddp
