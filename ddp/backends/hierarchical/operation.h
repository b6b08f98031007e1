#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace ddp::backends::hierarchical {

/// A collective that runs on the backend's thread.
class Operation final : public c10d::Work {
 public:
  /// `outputs`: what it fills, as the caller knows it; `body` throws where it
  /// fails.
  Operation(
      int rank,
      c10d::OpType type,
      const char* name,
      std::vector<at::Tensor> outputs,
      std::function<void()> body);

  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;

 private:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;

  friend class Queue;

  /// Why it failed; empty if it did not.
  std::string run();
  /// Sets the outcome; the future, if somebody has it. Later ones are complete.
  Future settle(const std::string& error);
  /// Completes the future, if there is one; says what a callback threw.
  std::string call_back(const Future& future) const;
  void tell(c10::ivalue::Future& future) const;

  const char* const name_;
  const std::vector<at::Tensor> outputs_;
  std::function<void()> body_;
  uint64_t number_ = 0;
  /// Made when it is asked for, as few are. These are guarded by Work's mutex.
  Future future_;
  bool settled_ = false;
  std::exception_ptr error_;
};

} // namespace ddp::backends::hierarchical
