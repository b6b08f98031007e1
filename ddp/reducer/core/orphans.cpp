#include <ddp/reducer/core/orphans.h>

#include <ddp/reducer/core/gradient_hook.h>

#include <c10/util/Exception.h>

#include <atomic>
#include <utility>

namespace ddp::detail {
namespace {

class Orphans final : public GradientListener {
 public:
  Orphans(std::vector<std::string> names, bool is_silent)
      : names_(std::move(names)), told_(is_silent) {}

  void on_gradient(size_t index, at::Tensor& gradient) override {
    if (gradient.defined() && !told_.exchange(true)) {
      TORCH_WARN(
          "ddp: the gradient of ",
          names_[index],
          " is not averaged over ranks: its Reducer was destroyed before it "
          "had reduced anything. Was it a temporary (`ddp::Reducer(net, "
          "group);` without a name), or local to a function that has "
          "returned? Keep it as long as you train");
    }
  }

 private:
  std::vector<std::string> names_;
  std::atomic<bool> told_;
};

} // namespace

void watch_orphans(
    const std::vector<at::Tensor>& parameters,
    const std::vector<std::string>& names,
    bool reduced) {
  const auto orphans = std::make_shared<Orphans>(names, reduced);
  for (size_t i = 0; i < parameters.size(); ++i) {
    add_gradient_hook(parameters[i], orphans, i);
  }
}

bool is_orphan(const at::Tensor& parameter) {
  return dynamic_cast<Orphans*>(gradient_listener(parameter)) != nullptr;
}

void adopt_orphan(const at::Tensor& parameter) {
  if (const auto* orphans =
          dynamic_cast<Orphans*>(gradient_listener(parameter))) {
    remove_gradient_hook(parameter, *orphans);
  }
}

} // namespace ddp::detail
