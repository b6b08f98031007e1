#include <ddp/init/backend_connection.h>

#include <ddp/backends/common/placement.h>
#include <ddp/backends/gloo.h>
#include <ddp/backends/hierarchical.h>
#include <ddp/backends/shm.h>
#include <ddp/debug/backend_wrapper.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/rendezvous/host.h>
#include <ddp/rendezvous/network_interface.h>
#include <ddp/support/detached_task.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <set>
#include <sstream>

#include <unistd.h>

namespace ddp::detail {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPeerTime{1000};
constexpr milliseconds kLookupTime{3500};
constexpr int kMaxSilent = 3;

std::string key(int64_t rank) {
  return "address/" + std::to_string(rank);
}

/// The ranks that are on hosts of their own, seen from this one's: one of each.
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
    const auto bytes = store.get(key(rank));
    std::istringstream place(std::string(bytes.begin(), bytes.end()));
    std::string address;
    int64_t port = 0;
    place >> address >> port;
    if (!answers(address, port, kPeerTime)) {
      ++silent;
      text << "; the host of rank " << rank << " of " << size << " at "
           << address << " does not answer at port " << port;
    }
  }
  return text.str();
}

/// Publishes the address at which this rank will listen to the other ranks of a
/// group over several hosts.
void publish_address(const ProcessGroupImpl& group) {
  if (group.on_one_host()) {
    return;
  }
  try {
    const auto interface = backends::gloo::interface_of(group.interface);
    const auto address =
        interface.empty() ? group.address : interface_address(interface);
    // A port of the kind that gloo gets. Nobody listens there later: to refuse
    // is an answer too.
    const int descriptor = listen_at(address, 0);
    const auto place = c10::str(address, " ", port_of(descriptor));
    close(descriptor);
    group.store->set(key(group.rank), place);
  } catch (const std::exception&) { // connecting says what is wrong with it
  }
}

/// For ranks that could not connect in time: a text that names up to three
/// ranks whose hosts do not answer this one. Empty if all answer, or if the
/// store does not answer. Takes at most a few seconds.
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

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

/// `create` may take longer than the timeout: gloo waits for five times that.
BackendPtr connect_by(
    ProcessGroupImpl& group,
    const std::function<BackendPtr()>& create,
    const std::function<std::string()>& clue,
    const LivenessCheck& check_liveness = nullptr) {
  return guarded(group, "connecting", [&] {
    auto result = run_detached(create);
    BackendPtr backend;
    wait_with_timeout(
        group,
        [&](std::chrono::milliseconds slice) {
          if (result.wait_for(slice) != std::future_status::ready) {
            const auto ended = check_liveness ? check_liveness() : "";
            DDP_CHECK(ended.empty(), ended);
            return false;
          }
          backend = result.get();
          return true;
        },
        clue);
    return backend;
  });
}

} // namespace

std::string ended_rank(
    const ProcessGroupImpl& group,
    const std::vector<int64_t>& ranks) {
  return group.backend == "shm"
      ? backends::shm::ended_rank(
            debug::unwrap_backend(*group.group->getBackend(c10::kCPU)), ranks)
      : "";
}

backends::BackendOptions backend_options(
    const ProcessGroupImpl& group,
    const std::string& name) {
  backends::BackendOptions options;
  options.store = c10::make_intrusive<c10d::PrefixStore>(name, group.store);
  options.name = "ddp" + group.scope;
  options.rank = static_cast<int>(group.rank);
  options.size = static_cast<int>(group.size);
  options.timeout = group.timeout;
  options.address = group.address;
  options.interface = group.interface;
  return options;
}

BackendPtr connect_over_gloo(
    ProcessGroupImpl& group,
    const backends::BackendOptions& options) {
  publish_address(group);
  return connect_by(
      group,
      [options] { return backends::gloo::create(options); },
      [&] { return unreachable_hosts(group); });
}

BackendPtr connect_over_shm(
    ProcessGroupImpl& group,
    const backends::BackendOptions& options,
    const LivenessCheck& check_liveness) {
  return connect_by(
      group,
      [options] { return backends::shm::create(options); },
      nullptr,
      check_liveness);
}

BackendPtr connect_by_hosts(ProcessGroupImpl& group) {
  const backends::hierarchical::Placement placement(group.hosts);
  const int host = placement.host[group.rank];
  const int place = placement.place[group.rank];
  const auto part = [&](const std::string& name, int rank, size_t size) {
    auto options = backend_options(group, name);
    options.rank = rank;
    options.size = static_cast<int>(size);
    return options;
  };
  backends::hierarchical::SubBackends sub_backends;
  const auto here = placement.ranks[host].size();
  if (here > 1) {
    sub_backends.intra_node = connect_over_shm(
        group, part("shm_" + std::to_string(host), place, here));
  }
  sub_backends.flat = connect_over_gloo(group, backend_options(group, "gloo"));
  if (place == 0 && placement.hosts() > 1) {
    sub_backends.inter_node = connect_over_gloo(
        group, part("gloo_between", host, placement.ranks.size()));
  }
  return backends::hierarchical::create(
      group.hosts, static_cast<int>(group.rank), sub_backends);
}

} // namespace ddp::detail
