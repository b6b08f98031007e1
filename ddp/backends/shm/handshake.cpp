#include <ddp/backends/shm/handshake.h>

#include <common/poll_until.h>
#include <common/random_name.h>
#include <ddp/backends/shm/memory/unix_socket.h>
#include <ddp/internal/check.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ddp::backends::shm {
namespace {

using Clock = UnixSocket::Clock;

constexpr auto kSocketKey = "socket";
// A process that connects and sends nothing delays the other ranks by this
// time.
constexpr std::chrono::seconds kGreetingTime(5);
constexpr std::chrono::milliseconds kLongestPause(100);

Message introduce(const Memory& own, const std::string& password, int rank) {
  Message message;
  password.copy(message.greeting.password, sizeof(Greeting::password));
  message.greeting.rank = rank;
  message.greeting.pid = getpid();
  message.files[0] =
      FileDescriptor(fcntl(own.descriptor(), F_DUPFD_CLOEXEC, 0));
  DDP_CHECK(
      message.files[0], "fcntl(F_DUPFD_CLOEXEC): {}", std::strerror(errno));
  message.files[1] = open_own_process();
  return message;
}

Peer peer_in(Message message, const Memory& own, int rank) {
  Peer peer;
  peer.pid = message.greeting.pid;
  peer.memory = message.greeting.rank == rank
      ? own.mapping()
      : std::make_shared<const Mapping>(message.files[0].get());
  peer.process = std::move(message.files[1]);
  return peer;
}

/// Whether the message comes from a rank that has not connected yet.
bool is_expected(
    const Greeting& greeting,
    const std::string& password,
    const std::vector<Message>& arrived) {
  const auto rank = greeting.rank;
  return std::equal(password.begin(), password.end(), greeting.password) &&
      rank > 0 && rank < static_cast<int>(arrived.size()) &&
      !arrived[rank].files[0];
}

/// Accepts the other ranks, and stores their messages in `messages`, by rank.
std::vector<UnixSocket> gather_sockets(
    const UnixSocket& listener,
    const std::string& password,
    std::vector<Message>& messages,
    Clock::time_point deadline) {
  std::vector<UnixSocket> arrived;
  while (arrived.size() + 1 < messages.size()) {
    auto socket = listener.accept(deadline);
    if (!socket.is_from_own_user()) {
      continue;
    }
    Message message;
    try {
      message =
          socket.receive(std::min(deadline, Clock::now() + kGreetingTime));
    } catch (const c10::DistNetworkError&) { // not a rank
      continue;
    }
    if (is_expected(message.greeting, password, messages)) {
      messages[message.greeting.rank] = std::move(message);
      arrived.push_back(std::move(socket));
    }
  }
  return arrived;
}

std::vector<Message> introduce_all(
    const Memory& own,
    const BackendOptions& options,
    Clock::time_point deadline) {
  std::string name;
  const auto listener = UnixSocket::listen(name);
  const auto password =
      ddp::detail::random_name().substr(0, sizeof(Greeting::password));
  options.store->set(kSocketKey, name + " " + password);
  std::vector<Message> messages(options.size);
  messages[0] = introduce(own, password, 0);
  const auto sockets = gather_sockets(listener, password, messages, deadline);
  options.store->deleteKey(kSocketKey); // all ranks have read it
  for (const auto& socket : sockets) {
    for (const auto& message : messages) {
      socket.send(message, deadline);
    }
  }
  return messages;
}

std::vector<Message> introduce_oneself(
    const Memory& own,
    const BackendOptions& options,
    Clock::time_point deadline) {
  // Short requests, since a longer one would block other uses of the store.
  DDP_CHECK_WITH(
      DistNetworkError,
      ddp::detail::poll_until(
          deadline,
          kLongestPause,
          [&] { return options.store->check({kSocketKey}); }),
      "rank {} did not connect",
      options.names.ranks.empty() ? 0 : options.names.ranks[0]);
  const auto address = options.store->get_to_str(kSocketKey);
  const auto space = address.find(' ');
  const auto socket = UnixSocket::connect(address.substr(0, space), deadline);
  socket.send(
      introduce(own, address.substr(space + 1), options.rank), deadline);
  std::vector<Message> messages;
  for (int rank = 0; rank < options.size; ++rank) {
    messages.push_back(socket.receive(deadline));
  }
  return messages;
}

} // namespace

FileDescriptor open_own_process() {
  auto process = open_process(getpid());
  DDP_CHECK(
      process,
      errno == ENOSYS ? "it needs Linux 5.3 or newer"
                      : std::string("pidfd_open: ") + std::strerror(errno),
      ", to detect that a process has ended");
  return process;
}

std::vector<Peer> exchange_memory(
    const Memory& own,
    const BackendOptions& options) {
  const auto deadline = Clock::now() + options.timeout;
  auto messages = options.rank == 0 ? introduce_all(own, options, deadline)
                                    : introduce_oneself(own, options, deadline);
  std::vector<Peer> peers;
  for (auto& message : messages) {
    peers.push_back(peer_in(std::move(message), own, options.rank));
  }
  return peers;
}

} // namespace ddp::backends::shm
