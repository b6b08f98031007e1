#include <checkpoint/detail/replica_check.h>

#include <c10/util/Exception.h>
#include <checkpoint/state_dict.h>
#include <ddp/detail/gradient_hook.h>
#include <ddp/detail/process_group_impl.h>
#include <ddp/module_state.h>
#include <ddp/verification.h>
#include <torch/nn/module.h>

#include <utility>

namespace ddp::detail {

void check_replicas(
    const std::vector<std::pair<std::string, const torch::nn::Module*>>&
        modules,
    const ProcessGroup& group) {
  auto& checks = ProcessGroup::Impl::of(group).checks_replicas;
  if (group.size() == 1 || !std::exchange(checks, false)) {
    return;
  }
  NamedTensors parameters;
  for (const auto& [name, module] : modules) {
    for (const auto& item : unwrapped(*module).named_parameters()) {
      if (gradient_listener(item.value())) { // or each rank's own, perhaps
        parameters.append(
            name.empty() ? item.key() : name + "." + item.key(), item.value());
      }
    }
  }
  try {
    verify_same_values(parameters, group, "parameters");
  } catch (const c10::ValueError& error) {
    if (group.rank() == 0) {
      TORCH_WARN(
          "ddp: in the first checkpoint, which has rank 0's values, ",
          error.what_without_backtrace(),
          "\nDo all ranks train this net, with a Reducer that lives, and with "
          "the same optimizer and learning rate, and does local SGD average "
          "before it saves? DDP_CHECK_REPLICAS=0 turns this "
          "check off");
    }
  }
}

} // namespace ddp::detail
