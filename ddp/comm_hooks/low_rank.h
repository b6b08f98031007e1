#pragma once

#include <ATen/core/Generator.h>
#include <ddp/process_group.h>

namespace ddp::detail {

/// Matrices of shape [1, rows, columns], grouped by shape.
using MatricesByShape = std::vector<std::vector<at::Tensor>>;

/// Returns the matrices individually, or, if `batch` is true, all matrices of
/// each shape as one tensor, [count, rows, columns].
std::vector<at::Tensor> join(const MatricesByShape& shapes, bool batch);

/// Copies joined matrices back to the original matrices.
void split(
    const std::vector<at::Tensor>& joined,
    const MatricesByShape& shapes);

/// Makes the columns of each matrix in `matrices` ([count, rows, columns], no
/// more columns than rows) orthonormal, in place. With one or two columns, and
/// in small types, `epsilon` is added to the columns' norms; a column of zeros
/// does not change.
void orthogonalize(at::Tensor matrices, double epsilon);

/// Averages matrices across ranks in the form P Q^T, where P and Q have few
/// columns.
///
/// Source: Vogels, Karimireddy and Jaggi, PowerSGD,
/// https://arxiv.org/abs/1905.13727. The order of operations, which determines
/// the exact bits, is from PyTorch's ddp_comm_hooks/powerSGD_hook.py.
class LowRank {
 public:
  /// Each tensor in `matrices` has the shape [count, rows, columns], and is
  /// changed in place.
  LowRank(std::vector<at::Tensor> matrices, int64_t rank, double epsilon);

  /// The total number of elements of all Qs.
  int64_t q_elements() const {
    return q_elements_;
  }

  /// Uses `memory`, of shape [q_elements()], for all Qs.
  void use(const at::Tensor& memory);
  /// Fills the Qs with the same random values on all ranks.
  void randomize(uint64_t seed);
  /// Prepares the Qs of the previous step for reuse.
  void reuse();

  /// Multiplies the matrices by the Qs; `reduce` does the rest.
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
