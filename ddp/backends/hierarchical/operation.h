#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

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
  friend class Queue;

  /// Why it failed; empty if it did not.
  std::string run();
  void complete(const std::string& error);

  const char* const name_;
  const std::vector<at::Tensor> outputs_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::function<void()> body_;
  uint64_t number_ = 0;
};

} // namespace ddp::backends::hierarchical
