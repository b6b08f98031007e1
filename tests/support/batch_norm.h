#pragma once

#include <tests/support/catch.h>

#include <ddp/process_group.h>

// For the tests of batch-norm over ranks: all ranks compute the same batch, and
// each rank takes its rows.

namespace ddp::test {

/// The number of rows of each rank: uneven, and 0 on rank 1.
inline std::vector<int64_t> uneven_rows(const ProcessGroup& group) {
  std::vector<int64_t> rows{3, 0, 5, 2};
  rows.resize(group.size());
  return rows;
}

inline int64_t sum_of(const std::vector<int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

/// This rank's part of the whole batch.
inline torch::Tensor part_of(
    const torch::Tensor& whole,
    const std::vector<int64_t>& rows,
    const ProcessGroup& group) {
  const auto first =
      std::accumulate(rows.begin(), rows.begin() + group.rank(), int64_t{0});
  return whole.narrow(0, first, rows[group.rank()]);
}

/// The whole batch of a step, with a mean far from zero.
inline torch::Tensor whole_batch(
    int64_t step,
    int64_t rows,
    std::vector<int64_t> shape) {
  torch::manual_seed(100 + step);
  shape.insert(shape.begin(), rows);
  return torch::randn(shape, torch::kDouble) * 2 + 5;
}

inline void require_close(
    const torch::Tensor& actual,
    const torch::Tensor& expected,
    double tolerance = 1e-9) {
  INFO(actual << "\nexpected\n" << expected);
  REQUIRE(actual.scalar_type() == expected.scalar_type());
  REQUIRE(torch::allclose(actual, expected, tolerance, tolerance));
}

/// Requires that a net that was trained on this rank's rows, with averaged
/// gradients, equals the net `alone` that was trained on all rows.
inline void require_trained_alike(
    const ProcessGroup& group,
    const torch::nn::Module& net,
    const torch::nn::Module& alone,
    double tolerance = 1e-9) {
  for (const auto& parameter : net.named_parameters()) {
    INFO(parameter.key());
    const auto& grad = parameter.value().grad();
    if (grad.defined()) { // undefined for InstanceNorm
      require_close(
          grad * group.size(),
          alone.named_parameters()[parameter.key()].grad(),
          tolerance);
    }
  }
  for (const auto& buffer : net.named_buffers()) {
    require_close(buffer.value(), alone.named_buffers()[buffer.key()]);
  }
}

} // namespace ddp::test
