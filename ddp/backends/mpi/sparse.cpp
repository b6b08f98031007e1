// The sum of sparse tensors.

#include <ddp/backends/mpi/backend.h>

#include <ddp/backends/mpi/exchange.h>
#include <ddp/support/plain_memory.h>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

namespace ddp::backends::mpi {
namespace {

/// What the ranks' tensors consist of, by rank.
struct Parts {
  Backend::Tensors indices;
  Backend::Tensors values;
};

/// The number of entries, and what the ranks must agree in.
at::Tensor header_of(const at::Tensor& tensor) {
  std::vector<int64_t> header{
      tensor._nnz(),
      tensor.sparse_dim(),
      static_cast<int64_t>(tensor.scalar_type())};
  header.insert(header.end(), tensor.sizes().begin(), tensor.sizes().end());
  return at::tensor(header, at::kLong);
}

void check_headers(const Backend::Tensors& headers, int rank) {
  const auto shape = [&](size_t of) { return headers[of].slice(0, 1); };
  for (size_t other = 0; other < headers.size(); ++other) {
    TORCH_CHECK(
        shape(other).equal(shape(rank)),
        "the sparse tensor of rank ",
        other,
        " differs from that of rank ",
        rank,
        " in dtype, sizes or the number of sparse dimensions");
  }
}

/// Adds memory for the parts of the others than `rank`.
void allocate(Parts& parts, const Backend::Tensors& headers, int rank) {
  for (auto* tensors : {&parts.indices, &parts.values}) {
    const auto own = (*tensors)[rank];
    const int64_t dimension = tensors == &parts.indices ? 1 : 0;
    auto sizes = own.sizes().vec();
    for (size_t other = 0; other < headers.size(); ++other) {
      if (other != static_cast<size_t>(rank)) {
        sizes[dimension] = headers[other][0].item<int64_t>();
        (*tensors)[other] = at::empty(sizes, own.options());
      }
    }
  }
}

/// The sum in the order of the ranks, as gloo's.
at::Tensor sum_of(const Parts& parts, const at::Tensor& like) {
  at::Tensor sum;
  for (size_t rank = 0; rank < parts.indices.size(); ++rank) {
    const auto part = at::sparse_coo_tensor(
        parts.indices[rank], parts.values[rank], like.sizes(), like.options());
    sum = sum.defined() ? sum.add_(part) : part;
  }
  return sum.coalesce();
}

} // namespace

void Backend::sparse_sum(
    Task& task,
    const at::Tensor& tensor,
    const c10d::ReduceOp& op) const {
  TORCH_CHECK_VALUE(
      op.op_ == c10d::ReduceOp::SUM,
      task.name,
      " over mpi of sparse tensors is by SUM only");
  TORCH_CHECK_VALUE(
      tensor.is_cpu(),
      task.name,
      " over mpi takes sparse tensors on the CPU, got one on ",
      tensor.device());
  const at::AutoDispatchBelowAutograd guard;
  const auto own = tensor.coalesce();
  const auto parts =
      std::make_shared<Parts>(Parts{Tensors(size_), Tensors(size_)});
  parts->indices[rank_] = own._indices().contiguous();
  parts->values[rank_] = detail::with_plain_memory(own._values()).contiguous();
  task.bytes += static_cast<int64_t>(
      parts->indices[rank_].nbytes() + parts->values[rank_].nbytes());
  task.outputs.push_back(tensor);
  const auto header = header_of(own);
  auto headers = at::empty({size_, header.numel()}, at::kLong).unbind();
  headers[rank_] = header;
  add_exchange(task, Tensors(size_, header), headers);
  task.second_step = [=, channel = channel_](Requests& requests) {
    const int rank = channel->rank;
    check_headers(headers, rank);
    allocate(*parts, headers, rank);
    for (const auto* tensors : {&parts->indices, &parts->values}) {
      const Tensors to_ranks(channel->size, (*tensors)[rank]);
      mpi::exchange(*channel, requests, to_ranks, *tensors);
    }
  };
  task.finish.push_back([=] { tensor.copy_(sum_of(*parts, tensor)); });
}

} // namespace ddp::backends::mpi
