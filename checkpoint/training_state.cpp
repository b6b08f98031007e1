#include <ddp/checkpoint/training_state.h>

#include <ATen/ATen.h>
#include <checkpoint/module_copies.h>
#include <checkpoint/prepared_file.h>
#include <checkpoint/replica_check.h>
#include <checkpoint/state_dict.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/internal/text_tensor.h>
#include <ddp/join.h>
#include <ddp/optim/optimizer_fields.h>
#include <ddp/optim/optimizer_plan.h>
#include <ddp/optimizers.h>
#include <ddp/process_group/agreement/broadcast_value.h>
#include <ddp/process_group/agreement/on_rank_0.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/random.h>
#include <ddp/random/random_state.h>
#include <ddp/support/error_text.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>

namespace ddp {
namespace {

using c10::IValue;

/// The parameters of a sampler's sequence, which a load compares. If the
/// sampler gives no state, the reason, which the save throws later.
std::string sequence_of(const detail::TrainingPart& sampler) {
  try {
    const auto state = detail::to_state_dict(sampler.save());
    const auto* kind = state.find("sampler");
    if (!kind || kind->scalar_type() != at::kByte) { // a class of the program
      return "";
    }
    auto text = " (" + detail::to_string(*kind);
    for (const auto& item : state) {
      const auto& name = item.key();
      if (name != "sampler" && name != "epoch" && name != "samples_done") {
        text += c10::str(", ", name, " ", item.value().item<int64_t>());
      }
    }
    return text + ")";
  } catch (const std::exception& error) {
    return ": " + detail::error_text(error);
  }
}

} // namespace

TrainingState& TrainingState::add_part(detail::TrainingPart part) {
  const bool known =
      std::any_of(parts_.begin(), parts_.end(), [&](const auto& other) {
        return other.name == part.name;
      });
  DDP_CHECK_VALUE(
      !known, "TrainingState: a part '{}' already exists", part.name);
  parts_.push_back(std::move(part));
  return *this;
}

TrainingState& TrainingState::add(
    const std::string& name,
    torch::nn::Module& module) {
  auto part = detail::local_part(
      name,
      [&module] { return detail::to_ivalue(detail::detached_state(module)); },
      [&module, name](const IValue& state) -> detail::Commit {
        const auto copies = detail::plan_copies(
            "'" + name + "'", detail::to_state_dict(state), module);
        return [copies] { detail::make_copies(copies); };
      });
  part.module = &module;
  return add_part(std::move(part));
}

TrainingState& TrainingState::add(
    const std::string& name,
    torch::optim::Optimizer& optimizer) {
  DDP_CHECK_VALUE(
      !dynamic_cast<Joinable*>(&optimizer),
      "TrainingState: '{}' shards its state over ranks: add it with its type, "
      "ZeroRedundancyOptimizer<...>, not as torch::optim::Optimizer",
      name);
  detail::with_kind_of(optimizer, [](auto /*kind*/) {}); // throws for others
  auto part = detail::local_part(
      name,
      [&optimizer] { return optimizer_state(optimizer); },
      [&optimizer](const IValue& state) -> detail::Commit {
        return detail::plan_optimizer_state(optimizer, state);
      });
  part.optimizer = &optimizer;
  return add_part(std::move(part));
}

TrainingState& TrainingState::add(const std::string& name, std::string& value) {
  return add_part(detail::local_part(
      name,
      [&value] { return IValue(value); },
      [&value, name](const IValue& state) -> detail::Commit {
        detail::check_kind(name, state.isString(), "string");
        return [&value, text = state.toStringRef()] { value = text; };
      }));
}

TrainingState& TrainingState::add(const std::string& name, at::Tensor& tensor) {
  return add_part(detail::local_part(
      name,
      [&tensor] { return IValue(tensor); },
      [&tensor, name](const IValue& state) -> detail::Commit {
        detail::check_kind(name, state.isTensor(), "tensor");
        const auto loaded = state.toTensor();
        if (tensor.requires_grad() && tensor.is_leaf()) { // it is trained
          DDP_CHECK_VALUE(
              loaded.sizes() == tensor.sizes(),
              "load_state_dict: '{}' is {} in this state, {} in the program",
              name,
              loaded.sizes(),
              tensor.sizes());
          return [copies = detail::Copies{{tensor, loaded}}] {
            detail::make_copies(copies);
          };
        }
        return [&tensor, loaded] {
          const auto& place = tensor.defined() ? tensor : loaded;
          tensor = loaded.defined()
              ? loaded.detach().to(place.device(), false, /*copy=*/true)
              : loaded;
        };
      }));
}

TrainingState& TrainingState::add_random_state(const std::string& name) {
  return add_part(detail::per_rank_part(
      name,
      [] { return detail::to_ivalue(random_state()); },
      [](const IValue& state) -> detail::Commit {
        const auto own = detail::to_state_dict(state);
        detail::check_random_state(own);
        return [own] { set_random_state(own); };
      },
      [](uint64_t seed) -> detail::Commit {
        return [seed] { at::manual_seed(seed); };
      }));
}

IValue TrainingState::state_dict(const ProcessGroup& group) const {
  const detail::heartbeat::Activity activity("TrainingState::state_dict");
  detail::check_gpu_results(group);
  std::string parts;
  for (const auto& part : parts_) {
    parts += (parts.empty() ? "'" : ", '") + part.name + "'";
    if (part.epoch) {
      parts += c10::str(" in epoch ", part.epoch());
    }
    if (part.sampler && group.size() > 1) {
      parts += sequence_of(part);
    }
  }
  detail::check_same_parts(parts, group);
  detail::Named<torch::nn::Module> modules;
  detail::Named<torch::optim::Optimizer> optimizers;
  for (const auto& part : parts_) {
    if (part.module) {
      modules.emplace_back(part.name, part.module);
    } else if (part.optimizer) {
      optimizers.emplace_back(part.name, part.optimizer);
    }
  }
  if (!modules.empty()) {
    detail::check_replicas(modules, optimizers, group);
  }
  return detail::save_parts(parts_, group);
}

void TrainingState::load_state_dict(
    const IValue& state,
    const ProcessGroup& group) {
  const auto commits = detail::plan_parts(parts_, state, group);
  detail::run_all(commits.unchecked);
  detail::run_all(commits.checked);
}

void TrainingState::save(const std::string& path, const ProcessGroup& group)
    const {
  const detail::heartbeat::Activity activity("TrainingState::save", path);
  detail::check_extension(path);
  const auto state = state_dict(group);
  detail::on_rank_0("TrainingState::save", group, [&] {
    write_checkpoint_file(path, state);
  });
  detail::warn_of_other_calls(
      c10::str("TrainingState::save(\"", path, "\")"), group);
}

bool TrainingState::load(
    const std::string& path,
    const ProcessGroup& group,
    const LoadOptions& options) {
  const detail::heartbeat::Activity activity("TrainingState::load", path);
  if (!options.every_rank_reads()) {
    detail::check_same_call(
        c10::str("TrainingState::load(\"", path, "\")"), group);
  }
  std::string found;
  detail::on_rank_0("TrainingState::load", group, [&] {
    // A link to a missing file is an error of the read.
    found = exists(std::filesystem::symlink_status(path)) ? path : "";
  });
  if (group.broadcast(found).empty()) {
    return false;
  }
  load_file(path, group, options);
  return true;
}

void TrainingState::load_file(
    const std::string& path,
    const ProcessGroup& group,
    const LoadOptions& options,
    std::optional<c10::IValue> read) {
  constexpr const char* kOperation = "TrainingState::load";
  const auto read_once = [&] {
    if (!read) {
      read = read_checkpoint_file(path, options);
    }
  };
  if (!options.every_rank_reads()) {
    detail::on_rank_0(kOperation, group, read_once);
    read = detail::broadcast_value(read.value_or(c10::IValue()), group);
  } else {
    detail::on_each_rank(kOperation, group, read_once);
  }
  // If the state does not fit on one rank, no rank is changed.
  detail::Commits commits;
  const auto step = [&](const std::function<void()>& work) {
    detail::on_each_rank(kOperation, group, [&] {
      try {
        work();
      } catch (const c10::Error& error) {
        DDP_THROW(Error, "'{}': {}", path, error.what_without_backtrace());
      }
    });
  };
  step([&] { commits = detail::plan_parts(parts_, *read, group); });
  step([&] { detail::run_all(commits.unchecked); });
  step([&] { detail::run_all(commits.checked); });
}

} // namespace ddp
