#include <launcher/rendezvous/log/log_channel.h>

#include <cerrno>

#include <sys/socket.h>

namespace ddp {

bool send_message(int channel, const std::string& message, int flags) {
  ssize_t sent = -1;
  do {
    sent = send(channel, message.data(), message.size(), flags | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

std::optional<std::string> receive_message(int channel, int flags) {
  for (;;) {
    const ssize_t size =
        recv(channel, nullptr, 0, flags | MSG_PEEK | MSG_TRUNC);
    if (size >= 0) {
      std::string message(static_cast<size_t>(size), '\0');
      return size == 0 || recv(channel, &message[0], message.size(), 0) == size
          ? message
          : "";
    }
    // ECONNRESET: the other side has gone and left something unread. Once said,
    // what it sent before can be read.
    if (errno != EINTR && errno != ECONNRESET) {
      return errno == EAGAIN ? std::nullopt : std::optional<std::string>("");
    }
  }
}

} // namespace ddp
