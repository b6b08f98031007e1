#include <checkpoint/module_copies.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>
#include <checkpoint/name_matching.h>
#include <checkpoint/state_dict.h>
#include <ddp/internal/check.h>

#include <cmath>
#include <sstream>

namespace ddp::detail {
namespace {

// LibTorch's `to(kHalf)` makes a number in half precision of batch-norm's
// counter, too.
bool is_whole_number(const at::Tensor& tensor) {
  if (tensor.numel() != 1 || !tensor.is_floating_point()) {
    return false;
  }
  const auto number = tensor.item<double>();
  return std::isfinite(number) && number == std::floor(number);
}

// What does not fit is said all at once.
void list_names(
    std::ostream& misfits,
    const char* what,
    const std::vector<std::string>& names) {
  for (const auto& name : names) {
    misfits << "\n  " << what << ": " << name;
  }
}

void check_fit(
    std::ostream& misfits,
    const std::string& name,
    const at::Tensor& target,
    const at::Tensor& source) {
  if (target.sizes() != source.sizes()) {
    misfits << "\n  wrong shape: " << name << " is " << source.sizes()
            << " in the file, " << target.sizes() << " in the module";
  }
  if (!c10::canCast(source.scalar_type(), target.scalar_type()) &&
      !is_whole_number(source)) {
    misfits << "\n  wrong dtype: " << name << " is " << source.scalar_type()
            << " in the file, " << target.scalar_type() << " in the module";
  }
}

} // namespace

Copies plan_copies(
    const std::string& source,
    const StateDict& tensors,
    const torch::nn::Module& module,
    IncompatibleKeys* keys) {
  const auto state = named_state(module);
  const auto match = match_names(state.keys(), tensors.keys());
  std::ostringstream misfits;
  if (keys == nullptr || match.pairs.empty()) {
    list_names(misfits, "missing in the file", match.missing);
    list_names(misfits, "unexpected in the file", match.unexpected);
  } else {
    *keys = {match.missing, match.unexpected};
  }
  Copies copies;
  for (const auto& [module_name, saved_name] : match.pairs) {
    copies.emplace_back(state[module_name], tensors[saved_name]);
    check_fit(misfits, module_name, copies.back().first, copies.back().second);
  }
  DDP_CHECK(
      misfits.str().empty(),
      "{} does not fit the module, which is unchanged; was it saved from "
      "another network?{}",
      source,
      misfits.str());
  return copies;
}

void make_copies(const Copies& copies) {
  const at::NoGradGuard no_grad;
  for (const auto& [target, saved] : copies) {
    target.copy_(saved.to(target.scalar_type())); // where it is, not on a GPU
  }
}

} // namespace ddp::detail
