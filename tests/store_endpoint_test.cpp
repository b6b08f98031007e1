#include <tests/support/catch.h>

#include <common/numeric_address.h>
#include <ddp/rendezvous/host.h>
#include <ddp/rendezvous/network_interface.h>
#include <ddp/rendezvous/store_connection.h>
#include <ddp/rendezvous/store_endpoint.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace ddp::test::store_endpoint_test {

using nlohmann::json;

LaunchEnvironment environment_of(int64_t rank) {
  LaunchEnvironment environment;
  environment.rank = rank;
  environment.world_size = 3;
  return environment;
}

/// Rank 0's side; `told` is its message to the others.
LaunchEnvironment choose(bool one_host, std::string& told) {
  auto environment = environment_of(0);
  detail::choose_store_endpoint(
      environment,
      [&](const std::string& text) { return told = text; },
      one_host,
      std::chrono::seconds(1));
  return environment;
}

LaunchEnvironment be_told(const std::string& text) {
  auto environment = environment_of(2);
  detail::choose_store_endpoint(
      environment,
      [&](const std::string&) { return text; },
      false,
      std::chrono::seconds(1));
  return environment;
}

uint32_t bound_to(int descriptor) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohl(address.sin_addr.s_addr);
}

TEST_CASE("on one host rank 0 listens on the loopback interface") {
  std::string told;
  const auto zero = choose(true, told);
  REQUIRE(zero.master_addr == "127.0.0.1");
  const int listener = zero.store_socket->get();
  REQUIRE(bound_to(listener) == INADDR_LOOPBACK);
  REQUIRE(detail::port_of(listener) == zero.master_port);
  const auto two = be_told(told);
  REQUIRE(two.master_addr == "127.0.0.1");
  REQUIRE(two.master_port == zero.master_port);
  REQUIRE(two.attempt == zero.attempt);
  REQUIRE(!two.store_socket);
  REQUIRE(choose(true, told).attempt != zero.attempt);
}

TEST_CASE("rank 0's socket is closed if its address cannot be sent") {
  const auto next = [] { return FileDescriptor(dup(STDIN_FILENO)).get(); };
  const auto choose_alone = [] {
    auto environment = environment_of(0);
    detail::choose_store_endpoint(
        environment,
        [](const std::string&) -> std::string {
          throw std::runtime_error("no broadcast");
        },
        true,
        std::chrono::seconds(1));
  };
  const int before = next();
  REQUIRE_THROWS_WITH(choose_alone(), "no broadcast");
  REQUIRE(next() == before);
}

TEST_CASE("on several hosts rank 0 tells all its addresses") {
  std::string told;
  const auto zero = choose(false, told);
  const auto own = detail::own_addresses();
  if (own.empty()) { // a machine without a network
    REQUIRE(zero.master_addr == "127.0.0.1");
    return;
  }
  REQUIRE(bound_to(zero.store_socket->get()) == INADDR_ANY);
  const std::vector<std::string> addresses = json::parse(told).at("addresses");
  REQUIRE(addresses == own);
  REQUIRE(zero.master_addr == own.front());
  REQUIRE(be_told(told).master_addr == "127.0.0.1"); // on the same host
}

TEST_CASE("a rank elsewhere takes the address that it reaches") {
  const int listener = detail::listen_at("127.0.0.3", 0);
  json place{
      {"host", "elsewhere"},
      {"addresses", {"127.0.0.2", "127.0.0.3", "127.0.0.4"}},
      {"port", detail::port_of(listener)},
      {"job", "x"}};
  REQUIRE(be_told(place.dump()).master_addr == "127.0.0.3");
  // A container network's address that this host has as well is its own.
  auto own = detail::own_addresses();
  own.push_back("127.0.0.4");
  place["addresses"] = own;
  REQUIRE_THROWS_WITH(
      be_told(place.dump()),
      Has("rank 2 of 3", "could not reach rank 0 at any of its addresses"));
  close(listener);
}

TEST_CASE("rank 0 takes the first free port of its interface") {
  const int other = detail::listen_at("127.0.0.1", 0);
  auto environment = environment_of(0);
  environment.master_addr = "node0";
  environment.master_port = detail::port_of(other);
  environment.port_count = 8;
  environment.interface = "lo";
  detail::use_interface(environment, "127.0.0.1");
  REQUIRE_NOTHROW(detail::connect_to_store(
      environment, "127.0.0.1", std::chrono::seconds(30)));
  close(other);
}

TEST_CASE("rank 0 meets the others at any address of its interface") {
  auto environment = environment_of(0);
  ifaddrs* first = nullptr;
  REQUIRE(getifaddrs(&first) == 0);
  for (const auto* each = first; each; each = each->ifa_next) {
    const auto family = each->ifa_addr ? each->ifa_addr->sa_family : AF_UNSPEC;
    if (!(each->ifa_flags & IFF_RUNNING) ||
        (family != AF_INET && family != AF_INET6)) {
      continue;
    }
    const auto address = detail::numeric_address(each->ifa_addr);
    if (address.find('%') == std::string::npos) { // not link-local
      INFO(each->ifa_name << ' ' << address);
      environment.interface = each->ifa_name;
      detail::use_interface(environment, address);
      REQUIRE(environment.meets_at_interface);
    }
  }
  freeifaddrs(first);
  detail::use_interface(environment, "203.0.113.77"); // of no host
  REQUIRE(!environment.meets_at_interface);
}

/// How many more lookups do not find the host "late-host".
int& lookups_in_vain() {
  static int count = 0;
  return count;
}

// Replaces the C library's function.
extern "C" int getaddrinfo(
    const char* host,
    const char* port,
    const addrinfo* hints,
    addrinfo** found) {
  const bool late = host && std::string(host) == "late-host";
  if (late && lookups_in_vain()-- > 0) {
    return EAI_NONAME;
  }
  static auto* const next =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return next(late ? detail::kLoopback : host, port, hints, found);
}

TEST_CASE("a host whose name does not exist yet is looked up again") {
  lookups_in_vain() = 1;
  REQUIRE(
      detail::resolve("late-host", std::chrono::minutes(1)) ==
      detail::kLoopback);
}

} // namespace ddp::test::store_endpoint_test
