#include <ddp/internal/check.h>
#include <ddp/support/optimizer_text.h>

#include <c10/util/Type.h>

#include <typeinfo>

namespace ddp::detail {

std::string describe(const torch::optim::Optimizer& optimizer) {
  auto text = c10::demangle(typeid(optimizer).name());
  const char* joint = " with learning rates ";
  for (const auto& group : optimizer.param_groups()) {
    try {
      text += c10::str(std::exchange(joint, ", "), group.options().get_lr());
    } catch (const std::exception&) { // its options have no learning rate
    }
  }
  return text;
}

std::string describe_with_parameters(const torch::optim::Optimizer& optimizer) {
  auto text = describe(optimizer);
  const char* joint = " of ";
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& tensor : group.params()) {
      text += detail::format(
          "{}{} {}",
          std::exchange(joint, ", "),
          tensor.scalar_type(),
          tensor.sizes());
    }
  }
  return text;
}

} // namespace ddp::detail
