#pragma once

#include <ATen/core/Generator.h>
#include <ddp/process_group.h>

namespace ddp::detail {

/// Matrices of shape [1, rows, columns] each, grouped by shape.
using MatricesByShape = std::vector<std::vector<at::Tensor>>;

/// The matrices one by one, or, with `batch`, all matrices of one shape as one
/// tensor, [count, rows, columns].
std::vector<at::Tensor> join(const MatricesByShape& shapes, bool batch);

/// Copies joined matrices back to the original ones.
void split(
    const std::vector<at::Tensor>& joined,
    const MatricesByShape& shapes);

/// Makes the columns of each matrix of `matrices` ([count, rows, columns], no
/// more columns than rows) orthonormal, in place. With one or two columns, and
/// in small types, `epsilon` is added to their norms; a column of zeros does
/// not change.
void orthogonalize(at::Tensor matrices, double epsilon);

/// Averages matrices over ranks in the form P Q^T, with few columns each.
///
/// Source: Vogels, Karimireddy and Jaggi, PowerSGD,
/// https://arxiv.org/abs/1905.13727. The order of operations, which determines
/// the bits, is from pytorch/torch/distributed/algorithms/ddp_comm_hooks/
/// powerSGD_hook.py.
class LowRank {
 public:
  /// Each of `matrices` has the shape [count, rows, columns], and is changed in
  /// place.
  LowRank(std::vector<at::Tensor> matrices, int64_t rank, double epsilon);

  /// The number of elements of all Qs.
  int64_t q_elements() const {
    return q_elements_;
  }

  /// Uses `memory`, of shape [q_elements()], for all Qs.
  void use(const at::Tensor& memory);
  /// Fills the Qs with the same random values on all ranks.
  void randomize(uint64_t seed);
  /// Prepares the Qs of the previous step for reuse.
  void reuse();

  /// Multiplies the matrices by Q; `reduce` does the rest.
  void project();
  /// Replaces the matrices by the ranks' approximate mean. Collective.
  void reduce(const ProcessGroup& group);

 private:
  struct Part {
    at::Tensor matrix;
    int64_t rank;
    at::Tensor p;
    at::Tensor q;
  };

  std::vector<Part> parts_;
  double epsilon_;
  int64_t p_elements_ = 0;
  int64_t q_elements_ = 0;
  at::Tensor p_memory_;
  at::Tensor q_memory_;
};

} // namespace ddp::detail
