#pragma once

#include <ATen/core/Generator.h>
#include <ddp/process_group.h>

namespace ddp::detail {

/// Matrices, [1, rows, columns] each, those of one shape together.
using MatricesByShape = std::vector<std::vector<at::Tensor>>;

/// The matrices one by one, or, to `batch` them, those of each shape as one
/// tensor, [count, rows, columns].
std::vector<at::Tensor> join(const MatricesByShape& shapes, bool batch);

/// Copies joined matrices back to where they lay.
void split(
    const std::vector<at::Tensor>& joined,
    const MatricesByShape& shapes);

/// Makes the columns of each matrix of `matrices` ([count, rows, columns], no
/// more columns than rows) orthonormal, in place. With one or two columns, and
/// in small types, `epsilon` is added to their lengths; a column of zeros stays
/// one.
void orthogonalize(at::Tensor matrices, double epsilon);

/// Matrices that ranks average in the form P Q^T, of few columns each.
///
/// Source: Vogels, Karimireddy and Jaggi, PowerSGD,
/// https://arxiv.org/abs/1905.13727, in the order of operations, which decides
/// bits, of pytorch/torch/distributed/algorithms/ddp_comm_hooks/
/// powerSGD_hook.py.
class LowRank {
 public:
  /// Each of `matrices` is [count, rows, columns] and is worked on in place.
  LowRank(std::vector<at::Tensor> matrices, int64_t rank, double epsilon);

  /// How many elements all Qs have.
  int64_t q_elements() const {
    return q_elements_;
  }

  /// Lets all Qs be in `memory`, [q_elements()].
  void use(const at::Tensor& memory);
  /// Fills them, equally on all ranks.
  void randomize(uint64_t seed);
  /// Makes ready those from the step before.
  void reuse();

  /// Multiplies the matrices by Q. The rest is for `reduce`.
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
