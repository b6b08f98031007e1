#include <checkpoint/formats/safetensors_index.h>
#include <checkpoint/formats/tree_flatten.h>
#include <checkpoint/module_copies.h>
#include <checkpoint/prepared_file.h>
#include <checkpoint/replica_check.h>
#include <checkpoint/state_dict.h>
#include <ddp/checkpoint/checkpoint.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/module_state.h>
#include <ddp/process_group/agreement/on_rank_0.h>
#include <ddp/process_group/agreement/rank_report.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <vector>

namespace ddp::detail {
namespace {

constexpr std::array kUsualNames{
    "model",
    "state_dict",
    "model_state_dict",
    "module",
    "net"};

// Nested where LibTorch wrote it.
bool is_module(const c10::IValue& value) {
  if (!value.isGenericDict()) {
    return false;
  }
  const auto dict = value.toGenericDict();
  return std::all_of(dict.begin(), dict.end(), [](const auto& entry) {
    return entry.key().isString() &&
        (entry.value().isTensor() || is_module(entry.value()));
  });
}

// The names of the entries that can be a module's.
std::vector<std::string> candidates(const c10::IValue& content) {
  std::vector<std::string> names;
  for (const auto& entry : content.toGenericDict()) {
    if (entry.key().isString() && is_module(entry.value()) &&
        !entry.value().toGenericDict().empty()) {
      names.push_back(entry.key().toStringRef());
    }
  }
  return names;
}

std::string choose(std::vector<std::string> names) {
  if (names.size() > 1) {
    std::vector<std::string> usual;
    for (const auto& name : names) {
      if (std::count(kUsualNames.begin(), kUsualNames.end(), name) > 0) {
        usual.push_back(name);
      }
    }
    if (usual.size() == 1) {
      return usual[0];
    }
  }
  std::string list;
  for (const auto& name : names) {
    list += "\n  " + name;
  }
  DDP_CHECK_VALUE(
      names.size() == 1,
      "the file has {} entries that can be a module's tensors; select one of "
      "them by LoadOptions().entry(name){}",
      names.size(),
      list);
  return names[0];
}

/// Finds the tensors of a module with the names `wanted` in the value of a
/// file: the whole value, or the entry `name`, or, without a name, the only
/// entry that is a dict of tensors, or the only such entry with a common name.
/// Otherwise throws `c10::ValueError` with the entries.
StateDict module_entry(
    const c10::IValue& content,
    const std::string& name,
    const std::vector<std::string>& wanted) {
  DDP_CHECK_VALUE(
      content.isGenericDict(), "the file has no dict of tensors by name");
  const auto dict = content.toGenericDict();
  if (name.empty() && is_module(content)) {
    const bool flat =
        std::any_of(dict.begin(), dict.end(), [](const auto& entry) {
          return entry.value().isTensor();
        });
    auto whole = tree_flatten(content).tensors;
    if (flat || match_names(wanted, whole.keys()).missing.empty()) {
      return whole;
    }
  }
  const auto chosen = name.empty() ? choose(candidates(content)) : name;
  const auto entry = dict.find(chosen);
  DDP_CHECK_VALUE(
      entry != dict.end() && is_module(entry->value()),
      "the file has no entry '{}' that is a dict of tensors by name",
      chosen);
  return tree_flatten(entry->value()).tensors;
}

} // namespace
} // namespace ddp::detail

namespace ddp {

void save_checkpoint(
    const std::string& path,
    const torch::nn::Module& module,
    const ProcessGroup& group) {
  const detail::heartbeat::Activity activity("save_checkpoint", path);
  detail::check_extension(path);
  detail::check_replicas({{"", &module}}, {}, group);
  detail::on_rank_0("save_checkpoint", group, [&] {
    write_checkpoint_file(
        path, detail::to_generic_dict(detail::named_state(module)));
  });
  detail::warn_of_other_calls(
      c10::str("save_checkpoint(\"", path, "\")"), group);
}

IncompatibleKeys load_checkpoint(
    const std::string& path,
    torch::nn::Module& module,
    const ProcessGroup& group,
    const LoadOptions& options) {
  const detail::heartbeat::Activity activity("load_checkpoint", path);
  // What rank 0 finds to fit has to fit the others as well.
  verify_same_model(unique_state(detail::unwrapped(module)), "", group);
  detail::Copies copies;
  IncompatibleKeys keys;
  const auto read = [&] {
    copies = detail::plan_copies(
        detail::with_shard_number(path),
        detail::module_entry(
            read_checkpoint_file(path, options),
            options.entry(),
            detail::named_state(module).keys()),
        module,
        options.strict() ? nullptr : &keys);
  };
  if (options.every_rank_reads()) {
    detail::on_each_rank("load_checkpoint", group, read);
    detail::make_copies(copies);
    return keys;
  }
  detail::check_same_call(c10::str("load_checkpoint(\"", path, "\")"), group);
  detail::on_rank_0("load_checkpoint", group, [&] {
    read();
    // What was read is gone before the broadcast, which takes as much memory.
    detail::make_copies(std::exchange(copies, {}));
  });
  if (group.size() > 1) {
    broadcast_module_state(detail::unwrapped(module), group);
    if (!options.strict()) { // rank 0 knows them
      keys = {
          detail::split_lines(
              group.broadcast(detail::join_lines(keys.missing_keys))),
          detail::split_lines(
              group.broadcast(detail::join_lines(keys.unexpected_keys)))};
    }
  }
  return keys;
}

} // namespace ddp
