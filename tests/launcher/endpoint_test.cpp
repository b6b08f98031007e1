// The addresses of this machine at which a node listens for others.
#include <tests/support/catch_plain.h>
#include <tests/support/free_port.h>

#include <sched.h>

#include <common/host_name.h>
#include <launcher/rendezvous/endpoint.h>
#include <tests/launcher/option_parsing.h>
#include <tests/support/process.h>
#include <tests/support/skip.h>

namespace ddp::test::endpoint_test {

NodeOptions nodes_at(const std::string& host, int port) {
  NodeOptions nodes;
  nodes.most = 2;
  nodes.host = host;
  nodes.port = port;
  return nodes;
}

NodeOptions told(NodeOptions nodes) {
  nodes.hosts_log = true;
  return nodes;
}

std::optional<Listener> listen_for(const NodeOptions& nodes) {
  const auto address = endpoint_address(nodes);
  return address ? listen_at_endpoint(nodes, *address) : std::nullopt;
}

std::string address_of(const Listener& listener) {
  return local_address(listener.socket.get()).host;
}

// Reserved for documentation, so no machine has it.
constexpr const char* kElsewhere = "203.0.113.7";

TEST_CASE("hosts have addresses", "[unit]") {
  CHECK(addresses_of("127.0.0.1") == std::vector<std::string>{"127.0.0.1"});
  CHECK(addresses_of("0:0:0::1") == std::vector<std::string>{"::1"});
  CHECK(addresses_of("no-such-host.invalid").empty());
  const auto local = addresses_of("localhost");
  CHECK(std::all_of(local.begin(), local.end(), [](const auto& each) {
    return each == "::1" || is_own_address(each); // a host may lack IPv6
  }));
}

TEST_CASE("this machine knows its addresses", "[unit]") {
  CHECK(is_own_address("127.0.0.1"));
  CHECK(is_own_address("127.0.1.1"));
  CHECK_FALSE(is_own_address(kElsewhere));
  CHECK_FALSE(is_own_address("2001:db8::7"));
  CHECK_FALSE(is_own_address("localhost")); // no address
  const std::string outward = outward_address();
  if (!outward.empty()) {
    CHECK(is_own_address(outward));
    CHECK(outward.compare(0, 4, "127.") != 0);
  }
}

TEST_CASE("--bind is an address or an interface", "[unit]") {
  CHECK(address_of_interface("lo") == "127.0.0.1");
  CHECK(address_of_interface("0.0.0.0") == "0.0.0.0");
  CHECK(address_of_interface("0::1") == "::1");
  CHECK_THAT(
      launch_error_of([] { address_of_interface("eth99"); }),
      Has("--bind eth99") && Has("lo (127.0.0.1)"));
}

TEST_CASE("one agent of the endpoint's machine serves", "[unit]") {
  const int port = free_port();
  const auto first = listen_for(nodes_at("127.0.0.1", port));
  REQUIRE(first);
  CHECK(first->port == port);
  CHECK(address_of(*first) == "127.0.0.1");
  CHECK_FALSE(listen_for(nodes_at("127.0.0.1", port)));
  CHECK_THAT(
      launch_error_of([&] { listen_for(told(nodes_at("127.0.0.1", port))); }),
      Has("127.0.0.1:" + std::to_string(port)) && Has("in use"));
}

TEST_CASE("a node that is not to serve does not listen", "[unit]") {
  NodeOptions nodes = nodes_at("127.0.0.1", free_port());
  nodes.hosts_log = false;
  CHECK_FALSE(listen_for(nodes));
}

TEST_CASE("an address of another machine is not served here", "[unit]") {
  CHECK_FALSE(listen_for(nodes_at(kElsewhere, free_port())));
  CHECK_FALSE(listen_for(nodes_at("no-such-host.invalid", 29400)));
  CHECK_THAT(
      launch_error_of([] { listen_for(told(nodes_at(kElsewhere, 29400))); }),
      Has("203.0.113.7:29400") && Has("not one of its addresses") &&
          Has("--bind"));
}

TEST_CASE("--bind says where the endpoint is", "[unit]") {
  NodeOptions nodes = told(nodes_at(kElsewhere, free_port()));
  nodes.bind = "lo";
  const auto listener = listen_for(nodes);
  REQUIRE(listener);
  CHECK(address_of(*listener) == "127.0.0.1");
  nodes.hosts_log.reset(); // --bind alone does not imply this host
  CHECK_FALSE(listen_for(nodes));
}

TEST_CASE("this machine's name is served where others reach it", "[unit]") {
  const NodeOptions nodes = nodes_at(detail::host_name(), free_port());
  const auto serve = [&] { return listen_for(nodes); };
  if (outward_address().empty()) { // no network
    CHECK_THAT(launch_error_of(serve), Has("--bind"));
    return;
  }
  const auto listener = serve();
  REQUIRE(listener);
  const std::string address = address_of(*listener);
  CHECK(is_own_address(address));
  CHECK(address.compare(0, 4, "127.") != 0);
  CHECK(address != "::1");
}

TEST_CASE("a pod's name with a domain may lead elsewhere", "[unit]") {
  const std::string outside = variable("KUBERNETES_SERVICE_HOST");
  bool has_name = false;
  std::vector<std::string> errors;
  std::thread renamed([&] {
    has_name = unshare(CLONE_NEWUTS) == 0 && sethostname("203", 3) == 0;
    for (const char* service : {"", "10.0.0.1"}) {
      set_variables({{"KUBERNETES_SERVICE_HOST", service}});
      errors.push_back(launch_error_of([] { // 203 in the domain 0.113.7
        listen_for(told(nodes_at(kElsewhere, free_port())));
      }));
    }
  });
  renamed.join();
  set_variables({{"KUBERNETES_SERVICE_HOST", outside}});
  if (!has_name) {
    skip("this process may not rename its host");
  }
  CHECK_THAT(errors[0], Has("not one of its addresses"));
  CHECK_THAT(errors[1], !Has("not one of its addresses")); // or no network
}

TEST_CASE("--local-addr by name is where others reach the node", "[unit]") {
  NodeOptions nodes;
  const auto address_for = [&](const std::string& text) {
    nodes.local_address = text;
    return local_address_of(nodes);
  };
  CHECK(address_for(kElsewhere) == kElsewhere);
  CHECK(address_for("127.0.1.1") == "127.0.1.1");
  CHECK(is_written_as_loopback(address_for("localhost")));
  CHECK_THAT(
      launch_error_of([&] { address_for("no-such-host.invalid"); }),
      Has("--local-addr no-such-host.invalid: does not resolve"));
  const std::string name = detail::host_name();
  if (!addresses_of(name).empty() && !outward_address().empty()) {
    CHECK_FALSE(is_written_as_loopback(address_for(name)));
  }
}

TEST_CASE("ports are taken from the range", "[unit]") {
  const int port = free_port();
  NodeOptions nodes;
  CHECK(listen_in_range("127.0.0.1", nodes).port > 0);
  nodes.first_port = port;
  nodes.last_port = port;
  const Listener first = listen_in_range("127.0.0.1", nodes);
  CHECK(first.port == port);
  CHECK_THAT(
      launch_error_of([&] { listen_in_range("127.0.0.1", nodes); }),
      Has("--port-range"));
  nodes.last_port = std::min(port + 20, 65535);
  CHECK(listen_in_range("127.0.0.1", nodes).port > port);
}

} // namespace ddp::test::endpoint_test
