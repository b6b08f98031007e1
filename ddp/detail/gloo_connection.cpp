#include <ddp/detail/gloo_connection.h>

#include <ddp/backends/gloo.h>
#include <ddp/detail/collective_wait.h>
#include <ddp/detail/own_thread.h>
#include <ddp/detail/silent_hosts.h>

#include <chrono>

namespace ddp::detail {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

BackendPtr connect_over_gloo(
    ProcessGroup::Impl& group,
    const backends::BackendOptions& options) {
  publish_address(group);
  return guarded(group, "connecting", [&] {
    // gloo itself waits for five times the timeout.
    auto result =
        on_own_thread([options] { return backends::gloo::create(options); });
    BackendPtr gloo;
    wait_with_timeout(
        group,
        [&](std::chrono::milliseconds slice) {
          if (result.wait_for(slice) != std::future_status::ready) {
            return false;
          }
          gloo = result.get();
          return true;
        },
        [&] { return silent_hosts(group); });
    return gloo;
  });
}

} // namespace ddp::detail
