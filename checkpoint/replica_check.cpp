#include <checkpoint/replica_check.h>

#include <checkpoint/state_dict.h>
#include <ddp/internal/check.h>
#include <ddp/model/same_values.h>
#include <ddp/process_group/agreement/rank_report.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/reducer/core/gradient_hook.h>
#include <ddp/support/optimizer_text.h>
#include <torch/nn/module.h>

#include <algorithm>

namespace ddp::detail {
namespace {

using Parameters = torch::OrderedDict<std::string, at::Tensor>;

/// Whether a Reducer averages some of these parameters.
bool has_reducer(const Parameters& parameters) {
  return std::any_of(
      parameters.begin(), parameters.end(), [](const auto& item) {
        return gradient_listener(item.value()) != nullptr;
      });
}

/// Whether some of these parameters have a gradient.
bool is_trained(const Parameters& parameters) {
  return std::any_of(
      parameters.begin(), parameters.end(), [](const auto& item) {
        return item.value().grad().defined();
      });
}

/// Each rank's text, by rank; empty if all are the same.
std::string differences(const std::string& text, const ProcessGroup& group) {
  const auto texts = group.all_gather(text);
  return group_ranks(texts).size() == 1 ? "" : name_by_ranks(texts);
}

/// Warns about the first optimizer that differs.
void compare(
    const Named<torch::optim::Optimizer>& optimizers,
    const ProcessGroup& group) {
  for (const auto& [name, optimizer] : optimizers) {
    const auto different = differences(describe(*optimizer), group);
    if (different.empty()) {
      continue;
    }
    if (group.rank() == 0) {
      TORCH_WARN(detail::format(
          "ddp: in this checkpoint '{}' differs between ranks: {}. The ranks "
          "then take different steps. DDP_CHECK_REPLICAS=0 turns this check "
          "off",
          name,
          different));
    }
    return;
  }
}

/// Warns if these parameters differ; later calls of check_replicas() then check
/// nothing.
void compare(
    const NamedTensors& parameters,
    const char* advice,
    const ProcessGroup& group) {
  const auto different = different_values(parameters, group, "parameters");
  if (different.empty()) {
    return;
  }
  ProcessGroupImpl::of(group).replica_checks = 0;
  if (group.rank() == 0) {
    TORCH_WARN(detail::format(
        "ddp: in this checkpoint, which has rank 0's values, {}\n{} "
        "DDP_CHECK_REPLICAS=0 turns this check off",
        different,
        advice));
  }
}

/// Text about the ranks' different calls; empty if they are equal.
std::string different_calls(
    const std::string& call,
    const ProcessGroup& group) {
  const auto calls = differences(call, group);
  return calls.empty() ? ""
                       : "the ranks made different calls: " + calls +
          ". Rank 0 reads and writes for all ranks: pass the same path and "
          "step on all ranks, for example by group.broadcast(path)";
}

} // namespace

void check_same_parts(const std::string& names, const ProcessGroup& group) {
  const auto different = differences(names, group);
  DDP_CHECK_VALUE(
      different.empty(),
      "the parts of a TrainingState differ between ranks: {}. Add the same "
      "parts on all ranks, in the same order, and call set_epoch on all ranks; "
      "leave out a sampler of one rank's own data, or save its state by an "
      "object with rank_state_dict()",
      different);
}

void check_same_call(const std::string& call, const ProcessGroup& group) {
  const auto text = different_calls(call, group);
  DDP_CHECK_VALUE(text.empty(), text);
}

void warn_of_other_calls(const std::string& call, const ProcessGroup& group) {
  const auto text = different_calls(call, group);
  if (!text.empty() && group.rank() == 0) {
    TORCH_WARN("ddp: ", text);
  }
}

void check_replicas(
    const Named<torch::nn::Module>& modules,
    const Named<torch::optim::Optimizer>& optimizers,
    const ProcessGroup& group) {
  auto& impl = ProcessGroupImpl::of(group);
  if (group.size() == 1 || !impl.checks_replicas || impl.replica_checks == 0) {
    return;
  }
  --impl.replica_checks;
  compare(optimizers, group);
  NamedTensors averaged;
  NamedTensors left_out; // such as `parameters_to_ignore`
  for (const auto& [name, module] : modules) {
    const auto all = unwrapped(*module).named_parameters();
    const bool reduced = has_reducer(all);
    const bool forgotten = !impl.is_split && !reduced && is_trained(all);
    for (const auto& item : all) {
      const auto& tensor = item.value();
      const auto path = name.empty() ? item.key() : name + "." + item.key();
      if (forgotten || gradient_listener(tensor)) {
        averaged.append(path, tensor);
      } else if (reduced && tensor.requires_grad()) {
        left_out.append(path, tensor);
      } // else it may differ on purpose
    }
  }
  compare(
      averaged,
      "Do all ranks train this net, with a Reducer that still exists, and with "
      "the same optimizer and learning rate? Does local SGD average before the "
      "save?",
      group);
  compare(
      left_out,
      "No Reducer averages them. If this is intended, save them by an object "
      "with rank_state_dict() (see TrainingState::add).",
      group);
}

} // namespace ddp::detail
