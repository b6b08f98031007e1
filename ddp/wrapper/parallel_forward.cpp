#include <ddp/parallel_forward.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/internal/module_inputs.h>
#include <ddp/support/error_text.h>
#include <ddp/wrapper/row_exchange.h>

#include <ATen/core/grad_mode.h>

namespace ddp::detail {
namespace {

/// Why the module cannot be run on shares of the input; empty if it can.
std::string device_mistake(
    const torch::nn::Module* module,
    const at::Tensor& input,
    const ProcessGroup& group,
    const ParallelForwardOptions& options) {
  const auto device = group.device();
  if (module && !takes_inputs_on(*module, device)) {
    return detail::format(
        "the module is on {}, but each share goes to the group's device, {}: "
        "call net->to(group.device()) first",
        module->parameters()[0].device(),
        device);
  }
  const bool stays = !options.move_input() && group.rank() == options.root();
  if (stays && input.defined() && input.device() != device) {
    return detail::format(
        "the input is on {}, but {}{}{}: pass input.to(group.device()), or "
        "keep move_input enabled",
        input.device(),
        module ? "the module and the group are" : "the group's device is",
        module ? " on " : " ",
        device);
  }
  return "";
}

/// Returns the output for `share`; if there is none, sets `failure` to the
/// reason.
at::Tensor run(
    const ShareForward& forward,
    const at::Tensor& share,
    std::string& failure) {
  try {
    const auto output = forward.run(share);
    failure = output.defined() ? "" : "forward returned an undefined tensor";
    return output;
  } catch (const std::exception& error) {
    failure = "forward threw: " + error_text(error);
  } catch (...) {
    failure = "forward threw an exception that is not a std::exception";
  }
  return {};
}

} // namespace

at::Tensor parallel_forward(
    const ShareForward& forward,
    const at::Tensor& input,
    const ProcessGroup& group,
    const ParallelForwardOptions& options) {
  const at::NoGradGuard no_grad;
  const auto destination = options.destination().value_or(options.root());
  RankStatus status;
  status.call = detail::format(
      "parallel_forward from rank {} to {}",
      options.root(),
      name_destination(destination));
  const heartbeat::Activity activity(status.call.c_str());
  auto before = status;
  before.mistake =
      destination == kAllRanks ? "" : rank_mistake(destination, group);
  if (before.mistake.empty()) {
    before.mistake = device_mistake(forward.module, input, group, options);
  }
  const auto share = scatter_rows(input, group, options.root(), before);
  at::Tensor output;
  // Rank 0 has the longest share. If it is empty, the result still gets the
  // shape of the module's output.
  if (group.rank() == 0 || share.size(0) > 0) {
    output = run(forward, share, status.failure);
  }
  return gather_rows(output, group, destination, "output", status);
}

} // namespace ddp::detail
