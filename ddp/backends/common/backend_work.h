#pragma once

#include <c10/util/StringUtil.h>
#include <common/seconds.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <exception>
#include <string>
#include <vector>

namespace ddp::backends {

/// Waits for at most `time`, and returns whether `work` has ended. Throws the
/// work's error. Some gloo works end but never become complete.
bool ends_within(std::chrono::milliseconds time, c10d::Work& work);

/// The beginning of a message about a timeout, before the seconds.
constexpr const char* kTimedOut = "timed out after ";

/// The end of a message about a process that ended without leaving its group,
/// or that has left.
constexpr const char* kHasEnded = ") has ended";
constexpr const char* kHasLeft = ") has left the group";

/// Returns text such as "timed out after 14 s".
inline std::string timed_out_after(std::chrono::milliseconds time) {
  return c10::str(kTimedOut, seconds(time), " s");
}

/// The data common to all operations of this library's backends.
struct OperationInfo {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  /// The name for messages, such as "all_reduce".
  const char* name = "";
  std::chrono::milliseconds timeout{};
  /// The outputs, as the caller passed them.
  std::vector<at::Tensor> outputs{};
  /// The total number of bytes of the tensors, for messages; -1 if unknown.
  int64_t bytes = 0;
};

/// An operation of one of this library's backends, with its outputs, its error,
/// and, on request, a future.
class BackendWork : public c10d::Work {
 public:
  using Clock = std::chrono::steady_clock;

  /// The rank to which the operation belongs.
  struct Member {
    const char* backend;
    int rank;
    int size;
  };

  BackendWork(const Member& member, OperationInfo info);

  /// Without a timeout, throws at the operation's own timeout, which breaks the
  /// group. A shorter timeout also throws, but ends only this wait; the
  /// operation continues.
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;

 protected:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;

  /// Waits until `until` at the latest. Returns whether the operation has
  /// ended, with or without an error.
  virtual bool ends_until(Clock::time_point until) = 0;
  /// Returns text such as "all_reduce of 12 bytes (operation 2 of its group)
  /// over shm on rank 1 of 3".
  std::string description() const;
  virtual Future make_future() const;
  virtual void complete_future(c10::ivalue::Future& future) const;

  void set_error(const std::string& text);
  /// Call this when the operation has ended; later futures are already
  /// complete. Returns the future that was requested earlier, if any, for the
  /// caller to complete.
  Future end_future();
  /// Completes the future if it is not null. If a callback throws, returns the
  /// error's text instead of throwing; otherwise returns an empty string.
  std::string call_back(const Future& future) const;

  const Member member_;
  const char* const name_;
  const std::vector<at::Tensor> outputs_;
  const int64_t bytes_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point deadline_;
  /// The operation's number in its group, from 1; 0 if not counted.
  uint64_t number_ = 0;
  std::exception_ptr error_;

 private:
  /// Created on request, since few operations need a future. The mutex of
  /// `Work` guards `future_` and `has_ended_`.
  Future future_;
  bool has_ended_ = false;
};

} // namespace ddp::backends
