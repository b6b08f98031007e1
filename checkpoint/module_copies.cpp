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

// Collects what does not fit, to be said all at once.
class Misfits {
 public:
  void add_names(const char* what, const std::vector<std::string>& names) {
    for (const auto& name : names) {
      list_ << "\n  " << what << ": " << name;
    }
  }

  void check(
      const std::string& name,
      const at::Tensor& target,
      const at::Tensor& source) {
    if (target.sizes() != source.sizes()) {
      list_ << "\n  wrong shape: " << name << " is " << source.sizes()
            << " in the file, " << target.sizes() << " in the module";
    }
    if (!c10::canCast(source.scalar_type(), target.scalar_type()) &&
        !is_whole_number(source)) {
      list_ << "\n  wrong dtype: " << name << " is " << source.scalar_type()
            << " in the file, " << target.scalar_type() << " in the module";
    }
  }

  void raise(const std::string& source) const {
    const auto list = list_.str();
    DDP_CHECK(
        list.empty(),
        "{} does not fit the module, which is unchanged; was it saved from "
        "another network?{}",
        source,
        list);
  }

 private:
  std::ostringstream list_;
};

} // namespace

Copies plan_copies(
    const std::string& source,
    const StateDict& tensors,
    const torch::nn::Module& module,
    IncompatibleKeys* keys) {
  const auto state = named_state(module);
  const auto match = match_names(state.keys(), tensors.keys());
  Misfits misfits;
  if (keys == nullptr || match.pairs.empty()) {
    misfits.add_names("missing in the file", match.missing);
    misfits.add_names("unexpected in the file", match.unexpected);
  } else {
    *keys = {match.missing, match.unexpected};
  }
  Copies copies;
  for (const auto& [module_name, saved_name] : match.pairs) {
    copies.emplace_back(state[module_name], tensors[saved_name]);
    misfits.check(module_name, copies.back().first, copies.back().second);
  }
  misfits.raise(source);
  return copies;
}

void make_copies(const Copies& copies) {
  const at::NoGradGuard no_grad;
  for (const auto& [target, saved] : copies) {
    target.copy_(saved.to(target.scalar_type())); // where it is, not on a GPU
  }
}

} // namespace ddp::detail
