#include <ddp/rendezvous/store_connection.h>

#include <common/address_list.h>
#include <common/connection.h>
#include <ddp/internal/check.h>
#include <ddp/rendezvous/host.h>
#include <ddp/support/detached_task.h>
#include <ddp/support/error_text.h>
#include <ddp/support/no_dns_guard.h>
#include <ddp/support/signals_blocked.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <thread>

namespace ddp::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

constexpr auto kRetryInterval = milliseconds(100);
// For a program that accepts connections but does not answer.
constexpr auto kAnswerTime = milliseconds(3000);
// The key by which the store of this job is recognized.
constexpr const char* kHere = "here";

/// A listening socket for rank 0, or none for the store's own socket, which
/// listens on all interfaces.
std::optional<int> listener(
    const LaunchEnvironment& environment,
    const std::string& address,
    int64_t port) {
  const auto& chosen = environment.store_socket;
  if (chosen && *chosen) {
    return chosen->release();
  }
  // Not for a host's own name, even if it resolves to a loopback address: other
  // hosts resolve it to another address.
  if (environment.meets_at_interface ||
      means_this_host(environment.master_addr)) {
    return listen_at(address, port);
  }
  return environment.port_count > 1
      ? std::optional(listen_on_all_interfaces(port))
      : std::nullopt;
}

/// Sets the port of `options` to the first that is free, and listens there.
void listen(
    const LaunchEnvironment& environment,
    const std::string& address,
    c10d::TCPStoreOptions& options) {
  const auto end = environment.master_port + environment.port_count;
  for (auto port = environment.master_port;; ++port) {
    try {
      options.port = static_cast<uint16_t>(port);
      options.masterListenFd = listener(environment, address, port);
      return;
    } catch (const c10::DistNetworkError&) {
      if (port + 1 >= end) {
        throw;
      }
    }
  }
}

StorePtr serve(
    const LaunchEnvironment& environment,
    const std::string& address,
    milliseconds timeout) {
  const NoDnsGuard no_dns_guard(address);
  // The server's thread then gets an error if a client has ended.
  const SignalsBlocked blocked({SIGPIPE});
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = timeout;
  listen(environment, address, options);
  return c10::make_intrusive<c10d::TCPStore>(address, options);
}

StorePtr join(const std::string& address, int64_t port, milliseconds timeout) {
  const NoDnsGuard no_dns_guard(address);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = timeout;
  return c10::make_intrusive<c10d::TCPStore>(address, options);
}

/// The store at a port if it is this job's.
StorePtr open_if_ours(
    const LaunchEnvironment& environment,
    const std::string& address,
    int64_t port) {
  try {
    int error = 0;
    const auto list = look_up(address, port, AI_NUMERICHOST, &error);
    if (error != 0 || !connect_within(*list, kAnswerTime)) {
      return nullptr;
    }
    auto store = join(address, port, kAnswerTime);
    const auto keys =
        c10::make_intrusive<c10d::PrefixStore>(environment.attempt, store);
    return keys->check({kHere}) ? store : nullptr;
  } catch (const std::exception&) {
    return nullptr;
  }
}

/// As above, in bounded time: a client of the store waits indefinitely for the
/// first answer.
StorePtr try_port(
    const LaunchEnvironment& environment,
    const std::string& address,
    int64_t port) {
  auto result = run_detached([environment, address, port] {
    return open_if_ours(environment, address, port);
  });
  return result.wait_for(kAnswerTime) == std::future_status::ready
      ? result.get()
      : nullptr;
}

StorePtr search(
    const LaunchEnvironment& environment,
    const std::string& address,
    milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (;; std::this_thread::sleep_for(kRetryInterval)) {
    for (int64_t i = 0; i < environment.port_count; ++i) {
      const auto port = environment.master_port + i;
      if (auto store = try_port(environment, address, port)) {
        store->setTimeout(timeout);
        return store;
      }
    }
    DDP_CHECK_WITH(
        DistNetworkError,
        Clock::now() < deadline,
        "none of the {} ports from MASTER_PORT on has this job's store",
        environment.port_count);
  }
}

StorePtr connect(
    const LaunchEnvironment& environment,
    const std::string& address,
    bool is_server,
    milliseconds timeout) {
  if (is_server) {
    return serve(environment, address, timeout);
  }
  if (environment.port_count > 1) {
    return search(environment, address, timeout);
  }
  // The store's own attempts take twice the timeout and print warnings.
  const auto port = environment.master_port;
  wait_for_listener(address, port, timeout);
  // The client waits indefinitely for the first answer.
  auto store = run_detached([=] { return join(address, port, timeout); });
  DDP_CHECK_WITH(
      DistNetworkError,
      store.wait_for(timeout) == std::future_status::ready,
      "the process that listens there does not answer");
  return store.get();
}

/// The store's address, for messages.
std::string place(
    const LaunchEnvironment& environment,
    const std::string& address) {
  const auto& name = environment.master_addr;
  return detail::format(
      "{}:{}{}",
      name,
      environment.master_port,
      name == address ? "" : c10::str(" (", address, ")"));
}

} // namespace

StorePtr connect_to_store(
    const LaunchEnvironment& environment,
    const std::string& address,
    milliseconds timeout) {
  const bool is_server =
      environment.rank == 0 && !environment.launcher_hosts_store;
  try {
    auto keys = c10::make_intrusive<c10d::PrefixStore>(
        environment.attempt, connect(environment, address, is_server, timeout));
    if (environment.port_count > 1 && is_server) {
      keys->set(kHere, std::vector<uint8_t>());
    }
    return keys;
  } catch (const std::exception& error) {
    const std::string question = environment.port_count > 1
        ? " (does rank 0 run on the Slurm step's first host? If not, set "
          "MASTER_ADDR and MASTER_PORT)"
        : " (is MASTER_ADDR this host's, and MASTER_PORT free?)";
    DDP_THROW(
        DistNetworkError,
        "rank {} of {}{}{}{}: {}",
        environment.rank,
        environment.world_size,
        is_server ? " could not serve the store at "
                  : " could not reach rank 0's store at ",
        place(environment, address),
        is_server ? question
                  : c10::str(
                        " within ",
                        timeout.count() / 1000.0,
                        " s (is rank 0 missing, or MASTER_PORT wrong?)"),
        error_text(error));
  }
}

} // namespace ddp::detail
