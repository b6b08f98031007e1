#include <ddp/backends/common/collective_backend.h>

#include <ddp/internal/check.h>
#include <ddp/support/plain_memory.h>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <memory>

namespace ddp::backends {
namespace {

using Tensors = CollectiveBackend::Tensors;

constexpr int64_t kMaxDimensions = 64;

/// The parts of the ranks' tensors, by rank.
struct SparseParts {
  Tensors headers;
  Tensors indices;
  Tensors values;
};

/// The number of entries, and the properties that must be equal on all ranks.
at::Tensor header_of(const at::Tensor& tensor) {
  auto header = at::zeros({3 + kMaxDimensions}, at::kLong);
  header[0] = tensor._nnz();
  header[1] = tensor.sparse_dim();
  header[2] = static_cast<int64_t>(tensor.scalar_type());
  header.narrow(0, 3, tensor.dim())
      .copy_(at::tensor(tensor.sizes(), at::kLong));
  return header;
}

void check_headers(const Tensors& headers, int rank) {
  const auto shape = [&](size_t of) { return headers[of].slice(0, 1); };
  for (size_t other = 0; other < headers.size(); ++other) {
    DDP_CHECK(
        shape(other).equal(shape(rank)),
        "the sparse tensors of ranks {} and {} differ in dtype, sizes or the "
        "number of sparse dimensions",
        other,
        rank);
  }
}

/// Allocates the parts of ranks other than `rank`; `dimension` counts entries.
void allocate(
    Tensors& parts,
    const Tensors& headers,
    size_t rank,
    int64_t dimension) {
  auto sizes = parts[rank].sizes().vec();
  for (size_t other = 0; other < headers.size(); ++other) {
    if (other != rank) {
      sizes[dimension] = headers[other][0].item<int64_t>();
      parts[other] = at::empty(sizes, parts[rank].options());
    }
  }
}

/// The sum in rank order, as in gloo.
at::Tensor sum_of(const SparseParts& parts, const at::Tensor& like) {
  at::Tensor sum;
  for (size_t rank = 0; rank < parts.indices.size(); ++rank) {
    const auto part = at::sparse_coo_tensor(
        parts.indices[rank], parts.values[rank], like.sizes(), like.options());
    sum = sum.defined() ? sum.add_(part) : part;
  }
  return sum.coalesce();
}

} // namespace

CollectiveBackend::WorkPtr CollectiveBackend::sparse_sum(
    const Call& call,
    const at::Tensor& tensor,
    const c10d::ReduceOp& op) {
  DDP_CHECK_VALUE(
      op.op_ == c10d::ReduceOp::SUM && tensor.is_cpu(),
      "{} of sparse tensors supports only SUM, on the CPU",
      arguments_.over(call.name));
  const at::AutoDispatchBelowAutograd guard;
  const auto own = tensor.coalesce();
  const auto parts = std::make_shared<SparseParts>();
  parts->headers = at::empty({size_, 3 + kMaxDimensions}, at::kLong).unbind();
  parts->headers[rank_] = header_of(own);
  parts->indices.resize(size_);
  parts->indices[rank_] = own._indices().contiguous();
  parts->values.resize(size_);
  parts->values[rank_] = detail::with_plain_memory(own._values()).contiguous();
  Plan plan;
  plan.exchanges = {{{parts->headers[rank_]}, parts->headers, at::kLong}};
  plan.outputs = {tensor};
  plan.next = [parts, rank = rank_] {
    const at::AutoDispatchBelowAutograd below;
    check_headers(parts->headers, rank);
    allocate(parts->indices, parts->headers, rank, 1);
    allocate(parts->values, parts->headers, rank, 0);
    const auto& values = parts->values;
    return std::vector<Exchange>{
        {{parts->indices[rank]}, parts->indices, at::kLong},
        {{values[rank]}, values, values[rank].scalar_type()}};
  };
  plan.finish = [parts, tensor] { tensor.copy_(sum_of(*parts, tensor)); };
  return exchange(call, std::move(plan));
}

} // namespace ddp::backends
