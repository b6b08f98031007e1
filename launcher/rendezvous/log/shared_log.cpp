#include <launcher/rendezvous/log/shared_log.h>

#include <cerrno>
#include <csignal>
#include <sstream>
#include <stdexcept>

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <common/processes/worker.h>
#include <common/scheduler/launch_error.h>
#include <launcher/processes.h>

namespace ddp {
namespace {

using Event = SharedLog::Event;

// The kernel reduces this size to its limit.
constexpr int kChannelBuffer = 1 << 20;

void enlarge_buffer(int socket) {
  setsockopt(
      socket, SOL_SOCKET, SO_SNDBUF, &kChannelBuffer, sizeof kChannelBuffer);
}

Event parse_event(const std::string& message) {
  Event event{static_cast<Event::Kind>(message[0]), message.substr(1)};
  std::istringstream words(event.text);
  if (event.kind == Event::Kind::kRejected) {
    words >> event.code >> std::ws;
    std::getline(words, event.text);
  } else if (event.kind == Event::Kind::kConnected) {
    words >> event.text >> event.own_address >> event.serves;
  } else if (event.kind == Event::Kind::kBeats) {
    std::string member;
    for (int64_t count = 0; words >> member >> count;) {
      event.beats[member] = count;
    }
  }
  return event;
}

} // namespace

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
      if (size == 0 || recv(channel, &message[0], message.size(), 0) == size) {
        return message;
      }
    }
    // ECONNRESET: the other side has ended and left messages unread. After this
    // error, its earlier messages can be read.
    if (errno != EINTR && errno != ECONNRESET) {
      return std::nullopt; // none yet, or no memory for it
    }
  }
}

SharedLog::SharedLog(const std::string& program, const HelperOptions& options) {
  int ends[2];
  check_call(
      socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends),
      "cannot create a socket pair for the rendezvous helper");
  channel_ = FileDescriptor(ends[0]);
  const FileDescriptor helpers(ends[1]);
  enlarge_buffer(channel_.get());
  enlarge_buffer(helpers.get());
  WorkerPlan plan;
  plan.program = program;
  plan.arguments = {
      program.substr(program.rfind('/') + 1),
      "--rdzv-member",
      helper_word(options)};
  plan.environment = helper_environment();
  plan.prepare = ignore_job_signals;
  plan.in_fd = helpers.get();
  plan.out_fd = STDERR_FILENO;
  pid_ = fork_worker(std::move(plan));
}

SharedLog::~SharedLog() {
  // A helper that has ended may have been reaped, and its pid reused. Its end
  // of the channel was closed before that.
  pollfd channel{channel_.get(), 0, 0};
  if (!left_ && poll(&channel, 1, 0) == 0) {
    kill(pid_, SIGKILL);
  }
}

std::optional<SharedLog::Event> SharedLog::next() {
  if (lost_) {
    return std::nullopt;
  }
  send_waiting();
  const auto message = receive_message(channel_.get(), MSG_DONTWAIT);
  if (!message) {
    return std::nullopt;
  }
  Event event = message->empty() ? helper_ended() : parse_event(*message);
  was_heard_ = true;
  lost_ =
      event.kind == Event::Kind::kLost || event.kind == Event::Kind::kRejected;
  return event;
}

// The process's event loop reaps the helper.
Event SharedLog::helper_ended() const {
  const std::string helper = "the rendezvous store's helper process (pid " +
      std::to_string(pid_) + ") ";
  siginfo_t end{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOWAIT) != 0) {
    return {Event::Kind::kLost, helper + "has ended"};
  }
  const int status = end.si_code == CLD_EXITED ? W_EXITCODE(end.si_status, 0)
                                               : W_EXITCODE(0, end.si_status);
  // One that ends before its first message, and is not killed, cannot run.
  const bool can_run = was_heard_ || status == W_EXITCODE(0, SIGKILL);
  Event event;
  event.kind = can_run ? Event::Kind::kLost : Event::Kind::kRejected;
  event.text = helper + describe_helper_end(status);
  event.code = kExitInfrastructure;
  return event;
}

void SharedLog::post(const std::string& text) {
  if (text.size() > kLargestEntry) {
    throw std::length_error(
        "an entry of the rendezvous has " + std::to_string(text.size()) +
        " bytes; the maximum is " + std::to_string(kLargestEntry));
  }
  send(log_message::kPost + text);
}

void SharedLog::set_last_will(const std::string& text) {
  send(log_message::kLastWill + text);
}

void SharedLog::watch(const std::set<std::string>& members) {
  std::string message(1, log_message::kWatch);
  for (const std::string& each : members) {
    message += each + "\n";
  }
  send(std::move(message));
}

void SharedLog::leave() {
  send(std::string(1, log_message::kLeave));
  left_ = true;
}

void SharedLog::send(std::string message) {
  if (!lost_) {
    waiting_.push_back(std::move(message));
    send_waiting();
  }
}

void SharedLog::send_waiting() {
  while (!waiting_.empty()) {
    if (!send_message(channel_.get(), waiting_.front(), MSG_DONTWAIT) &&
        (errno == EAGAIN || errno == ENOBUFS)) {
      return;
    }
    waiting_.pop_front(); // sent, or the helper has ended
  }
}

} // namespace ddp
