#include <tests/support/catch.h>

#include <ddp/rendezvous/host.h>
#include <ddp/rendezvous/network_interface.h>
#include <ddp/rendezvous/store_endpoint.h>
#include <nlohmann/json.hpp>

#include <arpa/inet.h>
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
  REQUIRE(detail::adopt_listener(listener, zero.master_port));
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

} // namespace ddp::test::store_endpoint_test
