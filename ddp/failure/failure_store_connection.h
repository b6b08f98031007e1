#pragma once

#include <ddp/failure/failure_store.h>
#include <ddp/support/detached_task.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>

namespace ddp::detail {

/// Outlives the failure store if a request hangs.
struct FailureStore::Connection {
  using Clock = std::chrono::steady_clock;

  static constexpr auto kAnswerTime = std::chrono::seconds(1);
  /// After this time without an answer, the store is silent.
  static constexpr auto kSilence = std::chrono::seconds(3);
  static constexpr auto kLook = std::chrono::milliseconds(50);
  /// If the store does not answer, at most this number of threads wait.
  static constexpr int kMaxPending = 8;

  c10::intrusive_ptr<c10d::Store> store;
  std::atomic<int> pending{0};
  std::atomic<bool> lost{false};
  /// The time of the last answer, or of the first request after it.
  std::atomic<Clock::time_point> last_sign{Clock::now()};

  /// Whether requests have had no answer for a long time. The network does not
  /// report the loss of a host, so the connection remains.
  bool is_silent() const {
    return pending > 0 && Clock::now() - last_sign.load() > kSilence;
  }

  /// Runs `request` on a separate thread. Returns its result if it is in time.
  /// Does not wait for a silent store, which may still get the request.
  template <typename Request>
  static auto ask(
      const std::shared_ptr<Connection>& connection,
      Request request,
      std::chrono::seconds time = kAnswerTime)
      -> std::optional<decltype(request(*connection->store))> {
    using Result = decltype(request(*connection->store));
    if (connection->lost || connection->pending >= kMaxPending) {
      return std::nullopt;
    }
    if (connection->pending == 0) {
      connection->last_sign = Clock::now();
    }
    try {
      auto task = std::make_shared<std::packaged_task<Result()>>(
          [connection, request] { return request(*connection->store); });
      auto result = task->get_future();
      start_detached([connection, task] {
        ++connection->pending;
        (*task)();
        connection->last_sign = Clock::now();
        --connection->pending;
      });
      const auto end = Clock::now() + time;
      while (result.wait_for(kLook) != std::future_status::ready) {
        if (Clock::now() > end || connection->is_silent()) {
          return std::nullopt;
        }
      }
      return result.get();
    } catch (const c10::DistError&) {
      connection->lost = true; // another request would fail, and log it
    } catch (const std::exception&) { // e.g. no thread: the store may work
    }
    return std::nullopt;
  }
};

} // namespace ddp::detail
