#pragma once

#include <ddp/backends/common/placement.h>
#include <ddp/backends/hierarchical.h>
#include <ddp/backends/hierarchical/sub_backend.h>

namespace ddp::backends::hierarchical {

/// The number of elements of the largest tensor.
int64_t longest(const std::vector<at::Tensor>& tensors);

/// The steps of collectives on the backend's thread. Collectives share the
/// ownership of this object, since a collective may be running when the backend
/// is destroyed. Tensors to gather or scatter are rows of equal length, by host
/// and place.
class Steps {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Timeout = std::chrono::milliseconds;

  Steps(
      const std::vector<std::string>& hosts,
      int rank,
      const SubBackends& sub_backends);

  void all_reduce(
      const at::Tensor& tensor,
      const c10d::ReduceOp& op,
      Timeout timeout) const;
  void reduce_to_root(const at::Tensor&, const c10d::ReduceOptions&) const;
  void broadcast(const at::Tensor& bytes, int root, Timeout timeout) const;
  void gather_rows(
      const at::Tensor& row,
      const Tensors& targets,
      Timeout timeout) const;
  void scatter_sums(
      const at::Tensor& output,
      const Tensors& inputs,
      const c10d::ReduceScatterOptions& options) const;

  /// Ends the waits for sub-backends and aborts the sub-backends. Only the
  /// first call has an effect.
  void break_off();

  /// Calls a method of each sub-backend of this rank.
  template <typename Method, typename... Arguments>
  void for_parts(Method method, Arguments... arguments) const {
    for (const auto* part : {&intra_node, &inter_node, &flat}) {
      if (part->backend()) {
        ((*part->backend()).*method)(arguments...);
      }
    }
  }

  const SubBackend intra_node;
  const SubBackend inter_node;
  const SubBackend flat;

 private:
  /// A rank's row, truncated to `length` elements.
  at::Tensor row_of(const at::Tensor& rows, int rank, int64_t length) const;

  const Placement placement_;
  const int rank_;
  const int size_;
  const int host_;
  const int place_;
  std::atomic<bool> broken_off_{false};
};

} // namespace ddp::backends::hierarchical
