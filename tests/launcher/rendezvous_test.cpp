// A node's part in a job of several, as its agent drives it.
#include <tests/support/catch_plain.h>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <common/scheduler/launch_error.h>
#include <launcher/rendezvous/rendezvous.h>
#include <launcher/sockets.h>
#include <tests/launcher/launched_job.h>
#include <tests/support/free_port.h>

namespace ddp::test::rendezvous_test {

// An address at which whoever connects gets no answer, as behind a firewall:
// Linux drops what comes where nobody accepts.
class SilentAddress {
 public:
  SilentAddress(const std::string& address, int port) {
    listener_ = FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<uint16_t>(port));
    REQUIRE(inet_pton(AF_INET, address.c_str(), &place.sin_addr) == 1);
    const auto* generic = reinterpret_cast<const sockaddr*>(&place);
    REQUIRE(bind(listener_.get(), generic, sizeof place) == 0);
    REQUIRE(listen(listener_.get(), 0) == 0);
    pollfd last{};
    do {
      callers_.emplace_back(
          socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      connect(callers_.back().get(), generic, sizeof place);
      last = {callers_.back().get(), POLLOUT, 0};
    } while (poll(&last, 1, 200) == 1);
  }

 private:
  FileDescriptor listener_;
  std::vector<FileDescriptor> callers_;
};

TEST_CASE("^C ends a search for the job behind firewalls", "[rendezvous]") {
  const int port = free_port();
  std::string endpoint = "127.0.0.1:" + std::to_string(port);
  std::vector<SilentAddress> silent;
  for (int i = 2; i < 17; ++i) {
    const std::string address = "127.0.0." + std::to_string(i);
    silent.emplace_back(address, port);
    endpoint += "," + address + ":" + std::to_string(port);
  }
  LaunchedJob job(words(
      "--nnodes=2 --rdzv-backend=etcd --rdzv-endpoint " + endpoint + " true"));
  job.agent();
  const auto start = Clock::now();
  CHECK(job.wait_after(SIGINT) == 128 + SIGINT);
  // Two seconds for each of them.
  CHECK(Clock::now() - start < std::chrono::seconds(15));
}

TEST_CASE("who writes without end does not hold up an agent", "[rendezvous]") {
  Job job;
  NodeOptions& nodes = job.options.nodes;
  nodes.least = 2;
  nodes.most = 2;
  nodes.host = "127.0.0.1";
  nodes.port = 1;
  nodes.hosts_log = false;
  job.store_program = WORKER_PATH; // writes 100 MB, then ends
  Rendezvous rendezvous(job);
  const pid_t writer = rendezvous.helper();
  // The second time it goes on writing as there is room again.
  for (int i = 0; i < 2; ++i) {
    pollfd events{rendezvous.fd(), POLLIN, 0};
    REQUIRE(poll(&events, 1, 20000) == 1);
    rendezvous.handle_events(Clock::now());
    CHECK(waitpid(writer, nullptr, WNOHANG) == 0);
  }
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
}

} // namespace ddp::test::rendezvous_test
