// Progress, completion and waits of the shm backend's operations.
#include <tests/support/catch.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <ATen/core/ivalue.h>
#include <ddp/backends/shm/handshake.h>
#include <ddp/backends/shm/memory/memory.h>
#include <ddp/backends/shm/memory/unix_socket.h>
#include <tests/support/backend_checks.h>
#include <tests/support/backend_waits.h>
#include <tests/support/shm_backend.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace ddp::test::shm_work_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return double(time.tv_sec) + 1e-6 * double(time.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

SHM_TEST("shared memory: operations overlap and are waited for in any order") {
  check_overlap(backend, backend_of(whole), [&](int i, const auto& values) {
    return i % 2 ? in_shared_memory(backend, values) : values;
  });
}

SHM_TEST("shared memory: an operation that nobody waits for ends by itself") {
  const auto signals = gloo_backend(group);
  check_left_alone(backend);
  // Without a future, by polling; one rank waits at once.
  Tensors last{torch::ones({1000000})};
  const auto work = backend->allreduce(last);
  if (backend->getRank() == 0) {
    work->wait();
  }
  while (!work->isCompleted()) {
    std::this_thread::yield();
  }
  REQUIRE(last[0].eq(3).all().item<bool>());
  // One rank does not even poll.
  Tensors unseen{torch::ones({1000000})};
  const auto left = backend->allreduce(unseen);
  if (backend->getRank() == 2) {
    signal(signals, 1, 2);
  } else {
    left->wait();
    signal(signals, 1, 2);
  }
  backend->barrier({})->wait();
}

SHM_TEST("shared memory: what a callback throws is an error of the group") {
  Tensors tensors{torch::ones({5})};
  if (group.rank() == 0) {
    backend->allreduce(tensors)->getFuture()->addCallback(
        [](c10::ivalue::Future&) { throw std::runtime_error("boom"); });
  }
  whole.barrier(); // the others start once the callback is set
  if (group.rank() > 0) {
    backend->allreduce(tensors)->wait();
  }
  REQUIRE_THAT(
      error_after([&] {
        for (;;) { // the error may follow the operation
          backend->barrier({})->wait();
        }
      }),
      Has("a callback on the future of ", " threw boom"));
  whole.barrier();
}

SHM_TEST("shared memory: a wait that ends too early does no harm") {
  check_early_wait(backend, gloo_backend(group));
}

SHM_TEST("shared memory: a wait takes no processor", 4) {
  backend->barrier({})->wait();
  const auto before = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  if (backend->getRank() == 3) {
    std::this_thread::sleep_for(seconds(2)); // the others wait for this rank
  }
  Tensors sums{torch::ones({10})};
  backend->allreduce(sums)->wait();
  const std::chrono::duration<double> waited =
      std::chrono::steady_clock::now() - start;
  REQUIRE(cpu_seconds() - before < waited.count() / 4);
}

SHM_TEST(
    "shared memory: a monitored barrier names the ranks that do not come",
    4) {
  for (const bool wait_all_ranks : {true, false}) {
    const auto own = backend_of(whole.duplicate());
    own->monitoredBarrier({}, wait_all_ranks);
    c10d::BarrierOptions options;
    options.timeout = milliseconds(500);
    if (group.rank() % 2 == 0) {
      REQUIRE_THAT(
          error_after(
              group.rank() == 0 ? milliseconds(490) : milliseconds(0),
              [&] { own->monitoredBarrier(options, wait_all_ranks); }),
          Has(", waiting for ranks 1,3"));
    }
    whole.barrier();
  }
}

SHM_TEST("shared memory: memory of tensors is given back", 2) {
  const auto values = torch::ones({1 << 20});
  const auto* first = backend->allocateTensor(8).const_data_ptr();
  for (int i = 0; i < 40; ++i) { // 40 times 4 MiB, at one place
    const auto large = in_shared_memory(backend, values);
    const auto* begin = static_cast<const char*>(large.const_data_ptr());
    REQUIRE(begin - static_cast<const char*>(first) < int64_t{20} << 20);
  }
}

SHM_TEST("shared memory: messages between two ranks are refused", 2) {
  Tensors message{torch::ones({4})};
  REQUIRE_THROWS_WITH(
      backend->send(message, 1, 0), Has("Backend shm does not support send"));
  REQUIRE_THROWS_WITH(
      backend->recv(message, 0, 0), Has("Backend shm does not support recv"));
}

TEST_CASE("shared memory: where a rank cannot have it, all take gloo") {
  const auto options = RankOptions().environment(
      {{"DDP_BACKEND", "auto"}, {"DDP_DEVICE", "cpu"}});
  for (const bool limited : {false, true}) {
    ranks(3, options, [limited] {
      if (limited && own_rank() == 1) {
        const rlimit small{1 << 20, 1 << 20};
        REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
      }
      const auto group = init_process_group();
      REQUIRE(group.backend() == (limited ? "gloo" : "shm"));
      auto sum = torch::ones({3});
      group.all_reduce(sum);
      REQUIRE(sum.eq(3).all().item<bool>());
    });
  }
}

// Which connections the shm backend accepts, and the errors if one closes.

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

/// The address of rank 0's socket, and its password.
std::pair<std::string, std::string> meeting(c10d::Store& store) {
  store.wait({"socket"}, kLong);
  const auto text = store.get_to_str("socket");
  const auto space = text.find(' ');
  return {text.substr(0, space), text.substr(space + 1)};
}

/// Rank 1's greeting; the process number identifies the sender.
Message greeting(
    const Memory& memory,
    const std::string& password,
    int32_t rank,
    int32_t pid) {
  Message message;
  password.copy(message.greeting.password, 24);
  message.greeting.rank = rank;
  message.greeting.pid = pid;
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
  // The second rank 1 is rejected with a message.
  const auto text = words_of([&] { sockets[4].receive(deadline); });
  REQUIRE_THAT(text, Has("closed the connection"));
  REQUIRE(sockets[3].receive(deadline).files[0]);
}

TEST_CASE("a program that starts while ranks connect inherits no memory") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto own = std::make_shared<Memory>(2);
  auto peers = std::async(std::launch::async, [&] {
    exchange_memory(*own, rank_of_two(0, store));
  });
  const auto [name, password] = meeting(*store);
  const auto deadline = Clock::now() + kLong;
  const auto refused = UnixSocket::connect(name, deadline);
  refused.send(greeting(*own, std::string(24, 'x'), 1, 90), deadline);
  REQUIRE_THROWS(refused.receive(deadline)); // rank 0 has its message, too
  namespace fs = std::filesystem;
  int count = 0;
  for (const auto& file : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (fs::read_symlink(file, gone) == "/memfd:ddp (deleted)") {
      ++count;
      const int descriptor = std::stoi(file.path().filename().string());
      CHECK(fcntl(descriptor, F_GETFD) == FD_CLOEXEC);
    }
  }
  CHECK(count == 2); // the memory, and the duplicate in the message
  const auto accepted = UnixSocket::connect(name, deadline);
  accepted.send(greeting(*own, password, 1, 11), deadline);
  peers.get();
}

TEST_CASE("a rank that waits for rank 0's address leaves the store usable") {
  c10d::TCPStoreOptions with_server;
  with_server.port = 0;
  with_server.isServer = true;
  const c10::intrusive_ptr<c10d::Store> store =
      c10::make_intrusive<c10d::TCPStore>("127.0.0.1", with_server);
  const auto own = std::make_shared<Memory>(2);
  auto peers = std::async(std::launch::async, [&] {
    exchange_memory(*own, rank_of_two(1, store));
  });
  const auto start = Clock::now();
  while (Clock::now() < start + std::chrono::seconds(1)) {
    store->check({"other"});
  }
  REQUIRE(Clock::now() < start + kLong / 2);
  store->set("socket", std::string("nobody password"));
  REQUIRE_THROWS_WITH(peers.get(), Has("connect"));
}

TEST_CASE("the file of what is no greeting is closed") {
  std::string name;
  const auto listener = UnixSocket::listen(name);
  const FileDescriptor own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{AF_UNIX, {}};
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  REQUIRE(connect(own.get(), generic, static_cast<socklen_t>(length)) == 0);
  char greeting[sizeof(backends::shm::Greeting)] = "";
  iovec content{greeting, sizeof(greeting)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = "";
  msghdr message{nullptr, 0, &content, 1, control, sizeof(control), 0};
  auto* attached = CMSG_FIRSTHDR(&message);
  *attached = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
  const int file = own.get();
  std::memcpy(CMSG_DATA(attached), &file, sizeof(file)); // one, not two
  REQUIRE(sendmsg(own.get(), &message, 0) == sizeof(greeting));

  const auto deadline = Clock::now() + kLong;
  const auto arrived = listener.accept(deadline);
  const auto next = [] { return FileDescriptor(dup(STDIN_FILENO)).get(); };
  const int before = next();
  REQUIRE_THROWS_WITH(
      arrived.receive(deadline), Has("no rank of this version"));
  REQUIRE(next() == before);
}

} // namespace ddp::test::shm_work_test
