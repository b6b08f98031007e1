// Whom the ranks of the shm backend let in, and what they say where one goes.

#include <tests/support/catch.h>

#include <ddp/backends/shm/handshake.h>
#include <ddp/backends/shm/memory/memory.h>
#include <ddp/backends/shm/memory/unix_socket.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace ddp::test::shm_handshake_test {

using backends::BackendOptions;
using backends::shm::exchange_memory;
using backends::shm::Memory;
using backends::shm::Message;
using backends::shm::UnixSocket;
using Clock = UnixSocket::Clock;

constexpr std::chrono::seconds kLong(20);

BackendOptions rank_of_two(
    int rank,
    const c10::intrusive_ptr<c10d::Store>& store) {
  BackendOptions options;
  options.store = store;
  options.rank = rank;
  options.size = 2;
  options.timeout = kLong;
  return options;
}

/// Where rank 0 listens, and its password.
std::pair<std::string, std::string> meeting(c10d::Store& store) {
  store.wait({"socket"}, kLong);
  const auto text = store.get_to_str("socket");
  const auto space = text.find(' ');
  return {text.substr(0, space), text.substr(space + 1)};
}

/// As rank 1 introduces itself, with a process number that tells who it is.
Message greeting(
    const Memory& memory,
    const std::string& password,
    int32_t rank,
    int32_t pid) {
  Message message;
  password.copy(message.text.data(), 24);
  std::memcpy(message.text.data() + 24, &rank, sizeof(rank));
  std::memcpy(message.text.data() + 28, &pid, sizeof(pid));
  message.files[0] = FileDescriptor(dup(memory.descriptor()));
  message.files[1] = FileDescriptor(dup(memory.descriptor()));
  return message;
}

TEST_CASE("of several greetings of one rank the first counts") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto own = std::make_shared<Memory>(3);
  const auto theirs = std::make_shared<Memory>(3);
  auto options = rank_of_two(0, store);
  options.size = 3;
  auto peers = std::async(
      std::launch::async, [&] { return exchange_memory(*own, options); });
  const auto [name, password] = meeting(*store);
  const auto deadline = Clock::now() + kLong;
  // A wrong password, no such rank, rank 0 itself; rank 1 twice; rank 2.
  std::vector<UnixSocket> sockets;
  const auto greet = [&, &name = name](
                         const std::string& word, int rank, int pid) {
    sockets.push_back(UnixSocket::connect(name, deadline));
    sockets.back().send(greeting(*theirs, word, rank, pid), deadline);
  };
  greet(std::string(24, 'x'), 1, 90);
  greet(password, 3, 91);
  greet(password, 0, 92);
  greet(password, 1, 11);
  greet(password, 1, 12);
  greet(password, 2, 13);
  const auto found = peers.get();
  REQUIRE(found.size() == 3);
  REQUIRE(found[0].pid == getpid());
  REQUIRE(found[1].pid == 11);
  REQUIRE(found[2].pid == 13);
  // The second was shown out, and says so in words.
  const auto text = words_of([&] { sockets[4].receive(deadline); });
  REQUIRE_THAT(text, Has("closed the connection"));
  REQUIRE(sockets[3].receive(deadline).files[0]);
}

} // namespace ddp::test::shm_handshake_test
