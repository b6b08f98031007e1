#include <ddp/comm_hooks/low_rank.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

namespace ddp::detail {
namespace {

/// Returns the next [count, rows, columns] of flat memory at `offset`, and
/// advances `offset`.
at::Tensor take(
    const at::Tensor& memory,
    int64_t& offset,
    int64_t count,
    int64_t rows,
    int64_t columns) {
  const auto size = count * rows * columns;
  offset += size;
  return memory.narrow(0, offset - size, size).view({count, rows, columns});
}

/// Columns of the shape of `q`, none of which is a multiple of another.
at::Tensor independent_columns(const at::Tensor& q) {
  const auto options = q.options().dtype(at::kFloat);
  const auto row = at::ones({q.size(1), 1}, options).cumsum(0);
  const auto column = at::ones({q.size(2)}, options).cumsum(0);
  return (row * column).cos().to(q.scalar_type());
}

/// The Gram-Schmidt process, which works with all types.
void orthogonalize_by_column(const at::Tensor& matrices, double epsilon) {
  const auto columns = matrices.size(2);
  for (int64_t i = 0; i < columns; ++i) {
    auto column = matrices.narrow(2, i, 1);
    auto norm = at::linalg_vector_norm(column, 2, {1}, /*keepdim=*/true);
    if (epsilon == 0) {
      norm.masked_fill_(norm == 0, 1); // Python divides by 0, which gives NaN
    } else {
      norm.add_(epsilon);
    }
    column.div_(norm);
    if (i + 1 < columns) {
      auto rest = matrices.narrow(2, i + 1, columns - i - 1);
      rest.sub_(at::sum(column * rest, {1}, /*keepdim=*/true) * column);
    }
  }
}

} // namespace

std::vector<at::Tensor> join(const MatricesByShape& shapes, bool batch) {
  std::vector<at::Tensor> joined;
  for (const auto& matrices : shapes) {
    if (batch && matrices.size() > 1) {
      joined.push_back(at::cat(matrices));
    } else {
      joined.insert(joined.end(), matrices.begin(), matrices.end());
    }
  }
  return joined;
}

void split(
    const std::vector<at::Tensor>& joined,
    const MatricesByShape& shapes) {
  auto next = joined.begin();
  for (const auto& matrices : shapes) {
    if (next->size(0) == 1) {
      next += static_cast<int64_t>(matrices.size());
      continue;
    }
    for (size_t i = 0; i < matrices.size(); ++i) {
      at::Tensor(matrices[i])
          .copy_(next->narrow(0, static_cast<int64_t>(i), 1));
    }
    ++next;
  }
}

void orthogonalize(at::Tensor matrices, double epsilon) {
  const auto dtype = matrices.scalar_type();
  if (matrices.size(2) <= 2 || dtype == at::kHalf || dtype == at::kBFloat16) {
    orthogonalize_by_column(matrices, epsilon);
  } else {
    matrices.copy_(std::get<0>(at::linalg_qr(matrices)));
  }
}

LowRank::LowRank(std::vector<at::Tensor> matrices, int64_t rank, double epsilon)
    : epsilon_(epsilon) {
  for (auto& matrix : matrices) {
    const auto count = matrix.size(0);
    const auto own = std::min({matrix.size(1), matrix.size(2), rank});
    p_elements_ += count * matrix.size(1) * own;
    q_elements_ += count * matrix.size(2) * own;
    parts_.push_back({std::move(matrix), own, {}, {}});
  }
}

void LowRank::use(const at::Tensor& memory) {
  q_memory_ = memory;
  int64_t offset = 0;
  for (auto& part : parts_) {
    part.q = take(
        memory, offset, part.matrix.size(0), part.matrix.size(2), part.rank);
  }
}

/// Draws on the CPU, so all devices get the same values.
void LowRank::randomize(uint64_t seed) {
  const auto generator = at::detail::createCPUGenerator(seed);
  for (auto& part : parts_) {
    part.q.copy_(at::randn(
        part.q.sizes(), generator, part.q.options().device(at::kCPU)));
    orthogonalize(part.q, epsilon_);
  }
}

void LowRank::reuse() {
  for (auto& part : parts_) {
    // A zero column would stay zero in all later steps.
    const auto is_zero = (part.q == 0).all(1, /*keepdim=*/true);
    part.q.copy_(at::where(is_zero, independent_columns(part.q), part.q));
    orthogonalize(part.q, epsilon_);
  }
}

void LowRank::project() {
  if (parts_.empty()) {
    return;
  }
  p_memory_ = at::empty({p_elements_}, q_memory_.options());
  int64_t offset = 0;
  for (auto& part : parts_) {
    const auto& matrix = part.matrix;
    part.p = take(p_memory_, offset, matrix.size(0), matrix.size(1), part.rank);
    at::bmm_out(part.p, matrix, part.q);
  }
}

void LowRank::reduce(const ProcessGroup& group) {
  if (parts_.empty()) {
    return;
  }
  group.all_reduce(p_memory_); // a sum: orthogonalize() scales it
  for (auto& part : parts_) {
    orthogonalize(part.p, epsilon_);
    at::bmm_out(part.q, part.matrix.transpose(1, 2), part.p);
  }
  group.all_reduce(q_memory_);
  q_memory_.div_(group.size());
  for (auto& part : parts_) {
    at::bmm_out(part.matrix, part.p, part.q.transpose(1, 2));
  }
}

} // namespace ddp::detail
