#pragma once

#include <optional>
#include <string>

namespace ddp {

/// What an agent and its helper process say to each other over a socket that
/// keeps messages apart: one of these letters, then the text.
namespace log_message {
// From the agent:
constexpr char kPost = 'P'; // the entry
constexpr char kWatch = 'W'; // members, one a line: the answer to each kBeats
constexpr char kLastWill = 'T'; // an entry, for when the agent has died
constexpr char kLeave = 'D'; // the job has ended
// From the helper:
constexpr char kUnreachable = 'U'; // why
constexpr char kRefused = 'R'; // ddprun's exit code, and why
// The nonce, this node's address for others, and 1 where it serves the log.
constexpr char kConnected = 'C';
constexpr char kEntry = 'E'; // the entry
constexpr char kBeats = 'B'; // "member count", one a line
constexpr char kLost = 'L'; // why
} // namespace log_message

/// Sends one message; false, with errno, where that cannot be done.
bool send_message(int channel, const std::string& message, int flags);

/// Takes the next message: none where there is none yet (with MSG_DONTWAIT),
/// an empty one where the other side has closed.
std::optional<std::string> receive_message(int channel, int flags);

} // namespace ddp
