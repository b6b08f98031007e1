#include <ddp/nn/sync_batch_norm.h>

#include <ddp/internal/check.h>
#include <ddp/nn/synchronized_batch_norm.h>

#include <ATen/ATen.h>

namespace ddp {

template <size_t D, typename Derived>
SyncBatchNormImplBase<D, Derived>::SyncBatchNormImplBase(
    const torch::nn::BatchNormOptions& its_options,
    ProcessGroup its_group)
    : torch::nn::NormImplBase<D, Derived, torch::nn::BatchNormOptions>(
          its_options),
      group(std::move(its_group)) {}

template <size_t D, typename Derived>
at::Tensor SyncBatchNormImplBase<D, Derived>::forward(const at::Tensor& input) {
  this->_check_input_dim(input);
  DDP_CHECK_VALUE(
      input.size(1) == this->options.num_features(),
      "SyncBatchNorm{}d: the input {} does not have {} channels (num_features)",
      D,
      input.sizes(),
      this->options.num_features());
  const bool tracks = this->options.track_running_stats();
  auto momentum = this->options.momentum().value_or(0.);
  if (this->is_training() && tracks) {
    this->num_batches_tracked += 1;
    if (!this->options.momentum()) { // the mean of all batches so far
      momentum = 1. / this->num_batches_tracked.template item<double>();
    }
  }
  if (this->is_training() && group.size() > 1) {
    return detail::synchronized_batch_norm(
        input,
        {this->weight, this->bias, this->running_mean, this->running_var},
        momentum,
        this->options.eps(),
        group);
  }
  return torch::nn::functional::detail::batch_norm(
      input,
      this->running_mean,
      this->running_var,
      this->weight,
      this->bias,
      this->is_training() || !tracks,
      momentum,
      this->options.eps());
}

template <size_t D, typename Derived>
void SyncBatchNormImplBase<D, Derived>::pretty_print(
    std::ostream& stream) const {
  const auto& its = this->options;
  stream << std::boolalpha << "ddp::SyncBatchNorm" << D << "d("
         << its.num_features() << ", eps=" << its.eps() << ", momentum=";
  its.momentum() ? stream << *its.momentum() : stream << "None";
  stream << ", affine=" << its.affine()
         << ", track_running_stats=" << its.track_running_stats() << ")";
}

template <size_t D, typename Derived>
void SyncBatchNormImplBase<D, Derived>::_check_input_dim(
    const at::Tensor& input) {
  const auto dimensions = static_cast<int64_t>(D) + 2;
  DDP_CHECK_VALUE(
      input.dim() == dimensions || (D == 1 && input.dim() == 2),
      "SyncBatchNorm{}d: an input of {}{} dimensions was expected, got {}",
      D,
      D == 1 ? "2 or " : "",
      dimensions,
      input.dim());
}

template class SyncBatchNormImplBase<1, SyncBatchNorm1dImpl>;
template class SyncBatchNormImplBase<2, SyncBatchNorm2dImpl>;
template class SyncBatchNormImplBase<3, SyncBatchNorm3dImpl>;

} // namespace ddp
