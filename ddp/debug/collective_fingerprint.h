#pragma once

#include <ddp/failure/failure_store.h>
#include <ddp/failure/flight_recorder.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ddp::debug {

/// Compares the next calls of a group's ranks over the store, which works with
/// every backend.
class CollectiveFingerprint {
 public:
  /// `store` must have separate keys for this object. `failure_store` may be
  /// null; `scope` is the group's name in the failure store. A wait that
  /// exceeds `wait_notice` is reported.
  CollectiveFingerprint(
      c10::intrusive_ptr<c10d::Store> store,
      std::shared_ptr<detail::FailureStore> failure_store,
      std::string scope,
      flight_recorder::Caller caller,
      std::chrono::milliseconds timeout,
      std::chrono::milliseconds wait_notice);

  void set_timeout(std::chrono::milliseconds timeout) {
    timeout_ = timeout;
  }

  /// Returns when all ranks have reached collective number `sequence` and their
  /// calls are equal. `number` is this call's number in the flight recorder. If
  /// the calls differ, all ranks throw `c10::ValueError` with the same text:
  /// each rank's call, and one stack for each call. Throws a
  /// `c10::DistBackendError` that names the ranks that have not arrived in time
  /// or have failed, or that says that the nodes of the job change; and
  /// another rank's `c10::ValueError` that is common to all ranks. If the
  /// store has ended, compares nothing: rank 0 has ended too, and the
  /// collective itself reports its end. Collective.
  void check(int64_t sequence, const Call& call, uint64_t number);

 private:
  /// Sends `request` to the store and returns the result. Throws if the store
  /// has ended or does not answer within the group's timeout.
  template <typename Request>
  auto ask(Request request) const;
  std::string key(int64_t sequence, int64_t rank) const;
  std::vector<std::string> keys(int64_t sequence) const;
  void wait_for_all(int64_t sequence, const Call& call, uint64_t number);
  /// Throws if another rank has failed or the nodes of the job change; a
  /// `c10::ValueError` if the failure is common to all ranks.
  void look_for_failure(int64_t sequence, uint64_t number) const;
  [[noreturn]] void abort_call(const std::string& reason, uint64_t number)
      const;
  /// Reports this rank's wait, unless another rank has reported a wait that
  /// continues. `state` is the result of `mark_waiting`. Returns whether this
  /// call reported the wait.
  bool tell_of_wait(
      int64_t sequence,
      const std::optional<detail::WaitState>& state) const;
  std::vector<int64_t> absent(int64_t sequence) const;
  /// If the ranks' calls differ, throws an error that lists the calls by rank.
  void compare(
      int64_t sequence,
      const std::vector<std::string>& said,
      uint64_t number);
  std::string place(int64_t sequence) const;
  std::string this_rank() const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<detail::FailureStore> failure_store_;
  std::string scope_;
  flight_recorder::Caller caller_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::chrono::milliseconds wait_notice_;
};

} // namespace ddp::debug
