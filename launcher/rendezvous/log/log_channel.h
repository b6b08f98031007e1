#pragma once

#include <optional>
#include <string>

namespace ddp {

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

} // namespace ddp
