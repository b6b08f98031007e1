#include <ddp/backends/shm/sparse_sum.h>

#include <ddp/support/plain_memory.h>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

namespace ddp::backends::shm {
namespace {

constexpr int64_t kMaxDimensions = 64;

/// The number of entries, and what the ranks must agree in.
at::Tensor header_of(const at::Tensor& tensor) {
  auto header = at::zeros({3 + kMaxDimensions}, at::kLong);
  header[0] = tensor._nnz();
  header[1] = tensor.sparse_dim();
  header[2] = static_cast<int64_t>(tensor.scalar_type());
  header.narrow(0, 3, tensor.dim())
      .copy_(at::tensor(tensor.sizes(), at::kLong));
  return header;
}

} // namespace

SparseSum::SparseSum(Team& team, const at::Tensor& tensor)
    : team_(team),
      tensor_(tensor),
      own_(tensor.coalesce()),
      headers_(
          at::empty({team.size(), 3 + kMaxDimensions}, at::kLong).unbind()),
      current_(gather(header_of(own_), headers_)) {}

bool SparseSum::step() {
  const at::AutoDispatchBelowAutograd guard;
  while (!current_->step()) {
    if (indices_.empty()) {
      check_headers();
      indices_ = allocate(own_._indices(), 1);
      current_ = gather(own_._indices().contiguous(), indices_);
    } else if (values_.empty()) {
      values_ = allocate(own_._values(), 0);
      current_ = gather(
          detail::with_plain_memory(own_._values()).contiguous(), values_);
    } else {
      tensor_.copy_(sum());
      return false;
    }
  }
  return true;
}

std::unique_ptr<Collective> SparseSum::gather(
    const at::Tensor& own,
    const Tensors& from_ranks) const {
  return std::make_unique<Exchange>(
      team_,
      ExchangeKind{c10d::OpType::_ALLREDUCE_SPARSE, own.scalar_type()},
      Tensors{own},
      from_ranks);
}

void SparseSum::check_headers() const {
  const auto shape = [&](int of) { return headers_[of].slice(0, 1); };
  for (int rank = 0; rank < team_.size(); ++rank) {
    TORCH_CHECK(
        shape(rank).equal(shape(team_.rank())),
        "the sparse tensor of rank ",
        rank,
        " differs from that of rank ",
        team_.rank(),
        " in dtype, sizes or the number of sparse dimensions");
  }
}

SparseSum::Tensors SparseSum::allocate(const at::Tensor& own, int64_t dimension)
    const {
  Tensors tensors;
  auto sizes = own.sizes().vec();
  for (const auto& header : headers_) {
    sizes[dimension] = header[0].item<int64_t>();
    tensors.push_back(at::empty(sizes, own.options()));
  }
  return tensors;
}

at::Tensor SparseSum::sum() const {
  at::Tensor sum;
  for (int rank = 0; rank < team_.size(); ++rank) {
    const auto part = at::sparse_coo_tensor(
        indices_[rank], values_[rank], tensor_.sizes(), tensor_.options());
    sum = sum.defined() ? sum.add_(part) : part;
  }
  return sum.coalesce();
}

} // namespace ddp::backends::shm
