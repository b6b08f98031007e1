#include <ddp/detail/gloo_connection.h>

#include <ddp/backends/gloo.h>
#include <ddp/detail/collective_wait.h>
#include <ddp/detail/own_thread.h>
#include <ddp/detail/silent_hosts.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>

namespace ddp::detail {

using Clock = std::chrono::steady_clock;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

BackendPtr connect_over_gloo(
    ProcessGroup::Impl& group,
    const backends::BackendOptions& options) {
  publish_address(group);
  return guarded(group, "connecting", [&] {
    // gloo itself waits for five times the timeout.
    auto result =
        on_own_thread([options] { return backends::gloo::create(options); });
    const auto deadline = Clock::now() + group.timeout;
    BackendPtr gloo;
    wait(group, [&](std::chrono::milliseconds slice) {
      const auto end = std::min(Clock::now() + slice, deadline);
      if (result.wait_until(end) == std::future_status::ready) {
        gloo = result.get();
        return true;
      }
      TORCH_CHECK(
          end < deadline,
          "timed out after ",
          group.timeout.count() / 1000.0,
          " s",
          silent_hosts(group));
      return false;
    });
    return gloo;
  });
}

} // namespace ddp::detail
