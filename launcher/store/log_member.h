#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <launcher/rendezvous/route.h>

namespace ddp {

/// What a helper of SharedLog is started with.
struct MemberOptions {
  int channel = -1; // to the agent
  std::string member;
  std::chrono::milliseconds beat_interval{0};
  int listener = -1; // to serve the store at; -1 for none
  std::vector<SocketAddress> endpoints; // names or addresses
};

/// The life of a helper process of SharedLog: waits for the store, then carries
/// entries and beats between it and the agent until one of them is gone.
[[noreturn]] void run_log_member(const MemberOptions& options);

} // namespace ddp
