#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <functional>

namespace ddp::backends::hierarchical {

/// Whether gloo reduces this dtype. Gloo sends these dtypes and bool.
bool is_of_gloo(at::ScalarType dtype);

/// A part of a hierarchical backend. The other functions start a collective,
/// and `finish` waits for the collective; all do nothing on a rank without this
/// sub-backend. AVG is computed as a sum, which the caller divides. Tensors
/// that gloo cannot reduce are gathered, and each rank reduces them. Errors
/// name the sub-backend.
class SubBackend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Launch = std::function<WorkPtr(c10d::Backend& part)>;
  using Timeout = std::chrono::milliseconds;

  /// Setting `broken_off` ends waits, even for backends that cannot abort.
  SubBackend(
      c10::intrusive_ptr<c10d::Backend> part,
      const char* where,
      const std::atomic<bool>& broken_off);

  const c10::intrusive_ptr<c10d::Backend>& backend() const {
    return backend_;
  }

  WorkPtr start(const Launch& launch) const;
  void finish(const WorkPtr& work) const;

  WorkPtr reduce(at::Tensor, const c10d::ReduceOp&, int root, Timeout) const;
  WorkPtr all_reduce(at::Tensor, const c10d::ReduceOp&, Timeout) const;
  // These functions only move data, and treat tensors as bytes.
  WorkPtr broadcast(const at::Tensor&, int root, Timeout) const;
  /// `rows`: on rank 0, one row for each rank.
  WorkPtr gather(at::Tensor row, const at::Tensor& rows, Timeout) const;
  WorkPtr scatter(const at::Tensor& row, const at::Tensor& rows, Timeout) const;
  /// `rows`: one row for each rank.
  WorkPtr all_gather(const at::Tensor& row, const at::Tensor& rows, Timeout)
      const;
  WorkPtr reduce_scatter(
      const at::Tensor& row,
      const at::Tensor& rows,
      const c10d::ReduceOp&,
      Timeout) const;

 private:
  [[noreturn]] void fail(const std::exception& error) const;
  /// Waits for a collective that the sub-backend has started.
  void await(c10d::Work& work) const;
  bool can_reduce(const at::Tensor& tensor) const;
  /// All-reduces a tensor that the sub-backend cannot reduce.
  void reduce_here(const at::Tensor&, const c10d::ReduceOp&, Timeout) const;

  const c10::intrusive_ptr<c10d::Backend> backend_;
  const char* const where_;
  const std::atomic<bool>& broken_off_;
};

} // namespace ddp::backends::hierarchical
