#include <ddp/rendezvous/store_endpoint.h>

#include <common/host_name.h>
#include <common/random_name.h>
#include <ddp/internal/check.h>
#include <ddp/rendezvous/host.h>
#include <ddp/rendezvous/network_interface.h>
#include <ddp/support/detached_task.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <thread>

namespace ddp::detail {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr auto kRound = std::chrono::milliseconds(2000);
constexpr auto kStoreLook = std::chrono::milliseconds(10);

/// An unusable interface is reported later, in the rendezvous.
std::vector<std::string> addresses_of(const std::string& interface) {
  try {
    return interface.empty()
        ? own_addresses()
        : std::vector<std::string>{interface_address(interface)};
  } catch (const c10::ValueError&) {
    return own_addresses();
  }
}

/// Rank 0's part: it sends all its addresses, since it cannot know which of
/// them the others reach.
json listen(LaunchEnvironment& environment, bool one_host) {
  auto addresses = addresses_of(environment.interface);
  if (one_host || addresses.empty()) {
    addresses = {kLoopback};
  }
  const bool loopback = addresses.front() == kLoopback;
  environment.store_socket = std::make_shared<FileDescriptor>(
      loopback ? listen_at(kLoopback, 0) : listen_on_all_interfaces(0));
  environment.master_addr = addresses.front();
  environment.master_port = port_of(environment.store_socket->get());
  return {
      {"host", host_identity()},
      {"addresses", addresses},
      {"port", environment.master_port},
      {"job", random_name()}};
}

/// Container networks have the same addresses on many hosts: an address that
/// this host also has does not lead to another host.
std::vector<std::string> foreign(std::vector<std::string> addresses) {
  for (const auto& own : own_addresses()) {
    addresses.erase(
        std::remove(addresses.begin(), addresses.end(), own), addresses.end());
  }
  return addresses;
}

/// The first of `addresses`, all of one host, that accepts connections. Tries
/// all at the same time, repeatedly; returns "" after `timeout`.
std::string first_reachable(
    const std::vector<std::string>& addresses,
    int64_t port,
    std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (Clock::now() < deadline) {
    std::vector<std::future<bool>> probes;
    for (const auto& address : addresses) {
      probes.push_back(run_detached([address, port] {
        try {
          wait_for_listener(address, port, kRound);
          return true;
        } catch (const c10::DistNetworkError&) {
          return false;
        }
      }));
    }
    const auto end = std::min(deadline, Clock::now() + kRound);
    for (; Clock::now() < end; std::this_thread::sleep_for(kStoreLook)) {
      for (size_t i = 0; i < probes.size(); ++i) {
        if (probes[i].valid() &&
            probes[i].wait_for(kRound * 0) == std::future_status::ready &&
            probes[i].get()) {
          return addresses[i];
        }
      }
    }
  }
  return "";
}

std::string address_of(
    const json& place,
    const LaunchEnvironment& environment,
    std::chrono::milliseconds timeout) {
  if (place.at("host") == host_identity()) {
    return kLoopback;
  }
  const std::vector<std::string> all = place.at("addresses");
  auto address =
      first_reachable(foreign(all), environment.master_port, timeout);
  DDP_CHECK_WITH(
      DistNetworkError,
      !address.empty(),
      "rank {} of {} on host {} could not reach rank 0 at any of its "
      "addresses, {}, port {}. Set MASTER_ADDR (for from_mpi, the option "
      "master_addr) to an address that all hosts reach, and MASTER_PORT "
      "(master_port) to a free port there",
      environment.rank,
      environment.world_size,
      host_name(),
      place.at("addresses").dump(),
      environment.master_port);
  return address;
}

} // namespace

void choose_store_endpoint(
    LaunchEnvironment& environment,
    const TextBroadcast& broadcast,
    bool one_host,
    std::chrono::milliseconds timeout) {
  const auto own =
      environment.rank == 0 ? listen(environment, one_host) : json();
  const auto place = json::parse(broadcast(own.dump()));
  if (environment.rank != 0) {
    environment.master_port = place.at("port");
    environment.master_addr = address_of(place, environment, timeout);
  }
  // The address may lead to another host, and to another job's store there.
  environment.attempt = "ddp/" + place.at("job").get<std::string>();
}

} // namespace ddp::detail
