#pragma once

#include <chrono>
#include <optional>
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

/// What an agent says to its helper process, over a socket that keeps messages
/// apart: one of these letters, then the text. The helper says a
/// SharedLog::Event's kind and its text.
namespace log_message {
constexpr char kPost = 'P'; // the entry
constexpr char kWatch = 'W'; // members, one a line: the answer to each kBeats
constexpr char kLastWill = 'T'; // an entry, for when the agent has died
constexpr char kLeave = 'D'; // the job has ended
} // namespace log_message

/// Sends one message; false, with errno, where that cannot be done.
bool send_message(int channel, const std::string& message, int flags);

/// Takes the next message: none where there is none yet (with MSG_DONTWAIT),
/// an empty one where the other side has closed.
std::optional<std::string> receive_message(int channel, int flags);

/// As the end of a command line, and back.
std::vector<std::string> helper_words(const HelperOptions& options);
HelperOptions helper_options(const std::vector<std::string>& words);

/// The life of a helper process of SharedLog: waits for the log, then carries
/// entries and beats between it and the agent until one of them is gone.
[[noreturn]] void run_log_helper(
    LogEngine& engine,
    const HelperOptions& options);

} // namespace ddp
