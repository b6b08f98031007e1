#include <ddp/init/unreachable_hosts.h>

#include <ddp/backends/gloo.h>
#include <ddp/rendezvous/host.h>
#include <ddp/rendezvous/network_interface.h>
#include <ddp/support/detached_task.h>

#include <unistd.h>

#include <set>
#include <sstream>

namespace ddp::detail {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPeerTime{1000};
constexpr milliseconds kLookupTime{3500};
constexpr int kMaxSilent = 3;

std::string key(int64_t rank) {
  return "address/" + std::to_string(rank);
}

/// One rank of each other host.
std::vector<int64_t> ranks_elsewhere(const ProcessGroupImpl& group) {
  std::vector<int64_t> ranks;
  std::set<std::string> known{group.hosts[group.rank]};
  for (int64_t r = 0; r < group.size; ++r) {
    if (known.insert(group.hosts[r]).second) {
      ranks.push_back(r);
    }
  }
  return ranks;
}

std::string ask_hosts(
    c10d::Store& store,
    const std::vector<int64_t>& ranks,
    int64_t size) {
  std::ostringstream text;
  int silent = 0;
  for (const auto rank : ranks) {
    if (silent == kMaxSilent || !store.check({key(rank)})) {
      continue;
    }
    std::istringstream place(store.get_to_str(key(rank)));
    std::string address;
    int64_t port = 0;
    place >> address >> port;
    if (!answers(address, port, kPeerTime)) {
      ++silent;
      text << "; the host of rank " << rank << " of " << size << " at "
           << address << " does not answer on port " << port;
    }
  }
  return text.str();
}

} // namespace

void publish_address(const ProcessGroupImpl& group) {
  if (group.on_one_host()) {
    return;
  }
  try {
    const auto interface = backends::gloo::interface_of(group.interface);
    const auto address =
        interface.empty() ? group.address : interface_address(interface);
    // A port like gloo's. No process listens there later, but a refused
    // connection is also an answer.
    const int descriptor = listen_at(address, 0);
    const auto place = c10::str(address, " ", port_of(descriptor));
    close(descriptor);
    group.store->set(key(group.rank), place);
  } catch (const std::exception&) { // connecting reports the error
  }
}

void forget_addresses(const ProcessGroupImpl& group) {
  if (group.rank != 0 || !group.store) {
    return;
  }
  const bool over_gloo = group.backend != "shm" && group.backend != "mpi";
  try {
    // gloo's names in LibTorch; an unknown key has no effect.
    for (int64_t r = 0; r < group.size; ++r) {
      if (over_gloo) {
        group.store->deleteKey("gloo/0/" + std::to_string(r));
      }
      if (!group.on_one_host()) {
        group.store->deleteKey("gloo_between/0/" + std::to_string(r));
        group.store->deleteKey(key(r));
      }
    }
  } catch (const std::exception&) { // the store's process may have ended
  }
}

std::string unreachable_hosts(const ProcessGroupImpl& group) {
  if (group.on_one_host()) {
    return "";
  }
  try {
    // The store may be on a host that does not answer.
    auto text = run_detached(
        [store = group.store,
         ranks = ranks_elsewhere(group),
         size = group.size] { return ask_hosts(*store, ranks, size); });
    return text.wait_for(kLookupTime) == std::future_status::ready ? text.get()
                                                                   : "";
  } catch (const std::exception&) {
    return "";
  }
}

} // namespace ddp::detail
