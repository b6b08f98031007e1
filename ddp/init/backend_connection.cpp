#include <ddp/init/backend_connection.h>

#include <ddp/backends/common/placement.h>
#include <ddp/backends/gloo.h>
#include <ddp/backends/hierarchical.h>
#include <ddp/backends/shm.h>
#include <ddp/debug/backend_wrapper.h>
#include <ddp/init/unreachable_hosts.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/support/detached_task.h>
#include <ddp/support/error_text.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace ddp::detail {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

/// Bounds `create`, which may take longer: gloo waits for five timeouts.
/// Reports an error of this rank alone, since other ranks then get only network
/// errors.
BackendPtr connect_by(
    ProcessGroupImpl& group,
    const std::function<BackendPtr()>& create,
    const std::function<std::string()>& clue,
    const LivenessCheck& check_liveness = nullptr) {
  return guarded(group, "connecting", [&] {
    auto result = run_detached(create);
    BackendPtr backend;
    std::exception_ptr own_error;
    wait_with_timeout(
        group,
        [&](std::chrono::milliseconds slice) {
          if (result.wait_for(slice) != std::future_status::ready) {
            const auto ended = check_liveness ? check_liveness() : "";
            DDP_CHECK(ended.empty(), ended);
            return false;
          }
          try {
            backend = result.get();
          } catch (const c10::DistError&) { // maybe another rank's end
            throw;
          } catch (const c10::Error& error) {
            own_error = std::current_exception();
            if (group.failure_store) {
              group.failure_store->report(group.scope, error_text(error));
            }
          }
          return true;
        },
        clue);
    if (own_error) {
      std::rethrow_exception(own_error);
    }
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
    auto options = part("shm_" + std::to_string(host), place, here);
    options.names = {static_cast<int>(group.size), placement.ranks[host]};
    sub_backends.intra_node = connect_over_shm(group, options);
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
