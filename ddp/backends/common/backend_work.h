#pragma once

#include <c10/util/StringUtil.h>
#include <common/seconds.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <exception>
#include <string>
#include <vector>

namespace ddp::backends {

/// Waits for the time at most; whether it has ended. Throws its error. Some of
/// gloo's are never complete, but end all the same.
bool ends_within(std::chrono::milliseconds time, c10d::Work& work);

/// How the text of a timeout begins, before the seconds.
constexpr const char* kTimedOut = "timed out after ";

/// Of a process that did not leave its group.
constexpr const char* kHasEnded = ") has ended";

/// "timed out after 14 s".
inline std::string timed_out_after(std::chrono::milliseconds time) {
  return c10::str(kTimedOut, seconds(time), " s");
}

/// What all operations of our own backends have.
struct OperationInfo {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  /// "all_reduce", for messages.
  const char* name = "";
  std::chrono::milliseconds timeout{};
  /// What it fills, as the caller knows it.
  std::vector<at::Tensor> outputs{};
  /// Of all tensors, for messages; -1: not said.
  int64_t bytes = 0;
};

/// An operation of one of our own backends: what it fills, why it failed, and a
/// future for those who ask for one.
class BackendWork : public c10d::Work {
 public:
  using Clock = std::chrono::steady_clock;

  /// The rank whose operation it is.
  struct Member {
    const char* backend;
    int rank;
    int size;
  };

  BackendWork(const Member& member, OperationInfo info);

  /// Without a timeout it throws at the operation's own, which breaks the
  /// group. A shorter one ends this wait only, by an exception too; the
  /// operation continues.
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;

 protected:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;

  /// Returns whether it has ended, with or without an error, after a wait until
  /// then at most.
  virtual bool ends_until(Clock::time_point until) = 0;
  /// "all_reduce of 12 bytes (operation 2 of its group) over shm on rank 1 of
  /// 3".
  std::string description() const;
  virtual Future make_future() const;
  virtual void complete_future(c10::ivalue::Future& future) const;

  void set_error(const std::string& text);
  /// It has ended: futures are complete from now on. Returns the one that
  /// someone has, if any, for the caller to complete.
  Future end_future();
  /// Completes the future, if it is one, on a thread that must not throw. Says
  /// what a callback threw, or nothing.
  std::string call_back(const Future& future) const;

  const Member member_;
  const char* const name_;
  const std::vector<at::Tensor> outputs_;
  const int64_t bytes_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point deadline_;
  /// Among the group's operations; 0: it is not counted.
  uint64_t number_ = 0;
  std::exception_ptr error_;

 private:
  /// Made when it is asked for, as few are. Both are guarded by Work's mutex.
  Future future_;
  bool has_ended_ = false;
};

} // namespace ddp::backends
