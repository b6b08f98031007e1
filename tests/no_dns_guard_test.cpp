// LibTorch's lookups of names for its messages, which must not reach a name
// server.
#include <tests/support/catch.h>

#include <common/file_descriptor.h>
#include <ddp/support/no_dns_guard.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <resolv.h>
#include <sys/socket.h>

namespace ddp::test::no_dns_guard_test {

/// A name server that never answers, which this thread uses during the object's
/// life.
class MuteNameServer {
 public:
  MuteNameServer() : socket_(socket(AF_INET, SOCK_DGRAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const place = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    REQUIRE(bind(socket_.get(), place, size) == 0);
    REQUIRE(getsockname(socket_.get(), place, &size) == 0);
    res_init();
    _res.nscount = 1;
    _res.nsaddr_list[0] = address;
    _res.retrans = 1; // seconds
    _res.retry = 1;
  }
  MuteNameServer(const MuteNameServer&) = delete;
  MuteNameServer& operator=(const MuteNameServer&) = delete;
  ~MuteNameServer() {
    res_init();
  }

  bool was_asked() const {
    char query[512];
    return recv(socket_.get(), query, sizeof(query), MSG_DONTWAIT) > 0;
  }

 private:
  FileDescriptor socket_;
};

/// Asks for the name of an address that has none.
void look_up_name() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  REQUIRE(inet_pton(AF_INET, "192.0.2.1", &address.sin_addr) == 1);
  char name[NI_MAXHOST];
  const auto* const place = reinterpret_cast<const sockaddr*>(&address);
  getnameinfo(place, sizeof(address), name, sizeof(name), nullptr, 0, 0);
}

TEST_CASE("a store at an address asks no name server") {
  const MuteNameServer server;
  for (const auto* host : {"127.0.0.1", "::1"}) {
    const detail::NoDnsGuard no_dns_guard(host);
    look_up_name();
    REQUIRE(!server.was_asked());
  }
  look_up_name();
  REQUIRE(server.was_asked());
}

TEST_CASE("a store at a name may ask for its address") {
  const MuteNameServer server;
  const detail::NoDnsGuard no_dns_guard("node1");
  look_up_name();
  REQUIRE(server.was_asked());
}

} // namespace ddp::test::no_dns_guard_test
