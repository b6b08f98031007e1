#include <ddp/comm_hooks/default_hooks.h>

#include <ddp/comm_hooks/rounds.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/collective_wait.h>

#include <ATen/ATen.h>

#include <algorithm>

namespace ddp {
namespace {

constexpr double kMost = 255; // the maximum of uint8

/// The tensors of all ranks, of the same shape.
std::vector<at::Tensor> gather(
    const at::Tensor& tensor,
    const ProcessGroup& group) {
  auto& impl = detail::ProcessGroupImpl::of(group);
  return detail::guarded(
      impl, "all_gather", [&] { return detail::gather_equal(impl, tensor); });
}

/// Scales and zero points for the rows of a matrix, [2, rows], which cover the
/// row's range; zero is exact.
at::Tensor parameters_of(const at::Tensor& rows) {
  const auto [least, most] = at::aminmax(rows.to(at::kFloat), 1);
  const auto low = least.clamp_max(0);
  const auto range = most.clamp_min(0) - low;
  const auto scale =
      (range / kMost).clamp_min(std::numeric_limits<float>::epsilon());
  const auto zero = (-at::round(low / scale)).clamp(0, kMost);
  return at::stack({scale, zero});
}

/// The channels' scales or zero points as a column next to the rows.
at::Tensor column(const at::Tensor& parameters, int64_t index) {
  return parameters[index].unsqueeze(1);
}

at::Tensor average(
    const at::Tensor& buffer,
    int64_t channel_size,
    const ProcessGroup& group) {
  const auto padding =
      (channel_size - buffer.numel() % channel_size) % channel_size;
  const auto padded =
      padding ? at::constant_pad_nd(buffer, {0, padding}, 0) : buffer;
  const auto rows = padded.view({-1, channel_size});
  const auto parameters = gather(parameters_of(rows), group);
  const auto& own = parameters[group.rank()];
  const auto quantized = (at::round(rows / column(own, 0)) + column(own, 1))
                             .clamp(0, kMost)
                             .to(at::kByte);
  const auto all = gather(quantized, group);
  auto sum = at::zeros(rows.sizes(), buffer.options().dtype(at::kFloat));
  for (size_t r = 0; r < all.size(); ++r) {
    sum.add_(
        column(parameters[r], 0) *
        (all[r].to(at::kFloat) - column(parameters[r], 1)));
  }
  return sum.div_(group.size())
      .view({-1})
      .narrow(0, 0, buffer.numel())
      .to(buffer.scalar_type());
}

} // namespace

struct DDP_LOCAL QuantizationHook::Impl {
  std::optional<int64_t> channel_size;
  detail::Rounds rounds;
};

QuantizationHook::QuantizationHook(const QuantizationOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->channel_size = options.channel_size();
  DDP_CHECK_VALUE(
      impl_->channel_size.value_or(1) > 0,
      "QuantizationOptions: channel_size is {}, expected 1 or more",
      impl_->channel_size.value_or(1));
}

QuantizationHook::~QuantizationHook() = default;

std::string QuantizationHook::describe() const {
  const auto size = impl_->channel_size;
  return detail::format(
      "{}(channel_size {})",
      CommHook::describe(),
      size ? std::to_string(*size) : "unset");
}

ProcessGroup QuantizationHook::connect(const ProcessGroup& group) {
  return impl_->rounds.connect(group);
}

c10::intrusive_ptr<c10::ivalue::Future> QuantizationHook::run(
    const GradBucket& bucket,
    const ProcessGroup& group) {
  const auto& buffer = bucket.buffer;
  if (!buffer.is_floating_point() || buffer.numel() == 0) {
    return detail::all_reduce_mean(buffer, group);
  }
  // A longer channel would only be padded with zeros.
  const auto size =
      std::min(impl_->channel_size.value_or(buffer.numel()), buffer.numel());
  return impl_->rounds.run(
      buffer, group, [buffer, size](const ProcessGroup& own) {
        return average(buffer, size, own);
      });
}

} // namespace ddp
