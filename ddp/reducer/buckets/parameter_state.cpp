#include <ddp/reducer/buckets/parameter_state.h>

#include <ddp/internal/check.h>
#include <ddp/model/tensor_contents.h>

#include <algorithm>
#include <utility>

namespace ddp::detail {
namespace {

/// Whether two tensors are equal, address and layout included. Equal keys mean
/// that both have memory, or none, and the same lazy negation and conjugation.
bool same_place(const at::Tensor& tensor, const at::Tensor& other) {
  const auto& a = *tensor.unsafeGetTensorImpl();
  const auto& b = *other.unsafeGetTensorImpl();
  return a.key_set() == b.key_set() &&
      a.storage().unsafeGetStorageImpl() ==
      b.storage().unsafeGetStorageImpl() &&
      a.storage_offset() == b.storage_offset() &&
      same_sizes(a.sizes(), b.sizes()) &&
      (a.is_contiguous() ? b.is_contiguous() : a.strides() == b.strides());
}

std::string describe_place(const at::Tensor& tensor) {
  return c10::str(describe(tensor), " on ", tensor.device());
}

} // namespace

ParameterState::ParameterState(
    at::Tensor parameter,
    std::string given_key,
    bool is_sparse)
    : tensor(std::move(parameter)),
      dtype(tensor.scalar_type()),
      device(tensor.device()),
      sparse(is_sparse),
      sizes(tensor.sizes().vec()),
      key(std::move(given_key)) {}

std::string ParameterState::name() const {
  const bool is_number =
      key.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? "parameter " + key : key;
}

void ParameterState::check_fit(const at::Tensor& gradient) const {
  DDP_CHECK(
      gradient.is_sparse() == sparse,
      "the gradient of {}{}",
      name(),
      gradient.is_sparse() ? " is sparse: name the parameter in "
                             "ReducerOptions().sparse_parameters"
                           : " was expected to be sparse, but is not");
  DDP_CHECK(
      fits(gradient) && fits(tensor),
      "{} was {} {} on {} when the Reducer was constructed; now it is {}, and "
      "its gradient {}: move or convert the module before constructing the "
      "Reducer",
      name(),
      dtype,
      c10::IntArrayRef(sizes),
      device,
      describe_place(tensor),
      describe_place(gradient));
}

bool ParameterState::lies_in_slice(const at::Tensor& gradient) const {
  return gradient.defined() && view.defined() && same_place(gradient, view);
}

const at::Tensor& ParameterState::slice() {
  if (!lies_in_slice(slice_)) {
    const auto* impl = view.unsafeGetTensorImpl();
    slice_ = at::Tensor(impl->shallow_copy_and_detach(
        impl->version_counter(), /*allow_tensor_metadata_change=*/true));
  }
  return slice_;
}

bool any_on_device(const std::vector<ParameterState>& parameters) {
  return std::any_of(
      parameters.begin(), parameters.end(), [](const auto& parameter) {
        return !parameter.device.is_cpu();
      });
}

} // namespace ddp::detail
