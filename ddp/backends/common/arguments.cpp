#include <ddp/backends/common/arguments.h>

#include <ddp/internal/check.h>
#include <ddp/support/plain_memory.h>

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <iterator>

namespace ddp::backends {

const char* reduction_name(c10d::ReduceOp::RedOpType kind) {
  constexpr const char* kNames[] = {
      "SUM",
      "AVG",
      "PRODUCT",
      "MIN",
      "MAX",
      "BAND",
      "BOR",
      "BXOR",
      "PREMUL_SUM"};
  return kind < std::size(kNames) ? kNames[kind] : "UNUSED";
}

std::string Arguments::over(const char* name) const {
  return c10::str(name, " over ", backend_);
}

void Arguments::check_usable(const char* name, const std::string& error) const {
  DDP_CHECK_WITH(
      DistBackendError,
      error.empty(),
      "{}: the group has already failed: {}",
      over(name),
      error);
}

void Arguments::check_dense(const char* name, const at::Tensor& tensor) const {
  DDP_CHECK_VALUE(tensor.defined(), "{} got an undefined tensor", over(name));
  const bool strided = tensor.layout() == at::kStrided;
  DDP_CHECK_VALUE(
      strided && tensor.is_non_overlapping_and_dense(),
      "{} expects dense tensors without gaps; got a tensor of layout {}, sizes "
      "{}{}; call {} on it first",
      over(name),
      tensor.layout(),
      tensor.sizes(),
      strided ? c10::str(" and strides ", tensor.strides()) : "",
      strided ? "contiguous()" : "to_dense()");
  DDP_CHECK_VALUE(
      detail::has_plain_memory(tensor),
      "{} got a tensor with the conjugate or negative bit set: pass "
      "tensor.resolve_conj().resolve_neg()",
      over(name));
}

void Arguments::check_contiguous(const char* name, const at::Tensor& tensor)
    const {
  check_dense(name, tensor);
  DDP_CHECK_VALUE(
      tensor.is_contiguous(),
      "{} expects contiguous tensors; got a tensor of sizes {} and strides {}; "
      "call contiguous() on it first",
      over(name),
      tensor.sizes(),
      tensor.strides());
}

void Arguments::check_on_cpu(const char* name, const at::Tensor& tensor) const {
  DDP_CHECK_VALUE(
      tensor.is_cpu(),
      "{} expects tensors on the CPU, but got a tensor on {}",
      over(name),
      tensor.device());
}

const at::Tensor& Arguments::only(const char* name, const Tensors& tensors)
    const {
  DDP_CHECK_VALUE(
      tensors.size() == 1,
      "{} expects one tensor, got {}",
      over(name),
      tensors.size());
  return tensors.front();
}

const Arguments::Tensors& Arguments::only_list(
    const char* name,
    const std::vector<Tensors>& lists) const {
  DDP_CHECK_VALUE(
      lists.size() == 1,
      "{} expects one list of tensors, got {}",
      over(name),
      lists.size());
  check_list(name, lists.front().size());
  return lists.front();
}

void Arguments::check_list(const char* name, size_t length) const {
  DDP_CHECK_VALUE(
      length == static_cast<size_t>(size_),
      "{} expects a list with one entry for each of {} ranks, got {}",
      over(name),
      size_,
      length);
}

void Arguments::check_same_dtype(
    const char* name,
    const at::Tensor& tensor,
    at::TensorList others) const {
  for (const auto& other : others) {
    DDP_CHECK_VALUE(
        other.scalar_type() == tensor.scalar_type(),
        "{} expects tensors of one dtype, got {} and {}",
        over(name),
        tensor.scalar_type(),
        other.scalar_type());
  }
}

void Arguments::check_root(const char* name, int64_t root) const {
  DDP_CHECK_VALUE(
      root >= 0 && root < size_,
      "{}: root {} is not a rank of a group of {}",
      over(name),
      root,
      size_);
}

void Arguments::check_peer(const char* name, int peer) const {
  DDP_CHECK_VALUE(
      peer >= 0 && peer < size_,
      "{}: peer {} is not a rank of a group of {}",
      over(name),
      peer,
      size_);
}

void Arguments::check_no_lists(
    const char* name,
    const std::vector<Tensors>& lists) const {
  DDP_CHECK_VALUE(
      lists.empty(),
      "{}: only the root may pass a list, not rank {}",
      over(name),
      rank_);
}

Arguments::Tensors Arguments::parts(
    const char* name,
    const at::Tensor& tensor,
    const std::vector<int64_t>& lengths) const {
  check_contiguous(name, tensor);
  c10d::checkSplitSizes(lengths, tensor, size_);
  Tensors result;
  int64_t begin = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const auto length =
        lengths.empty() ? tensor.size(0) / size_ : lengths[rank];
    result.push_back(tensor.narrow(0, begin, length));
    begin += length;
  }
  return result;
}

Arguments::Tensors Arguments::equal_parts(
    const char* name,
    const at::Tensor& tensor,
    int64_t numel) const {
  check_contiguous(name, tensor);
  DDP_CHECK_VALUE(
      tensor.numel() == numel * size_,
      "{} expects a tensor of {} times {} elements, got sizes {}",
      over(name),
      size_,
      numel,
      tensor.sizes());
  return tensor.view(-1).tensor_split(size_);
}

} // namespace ddp::backends
