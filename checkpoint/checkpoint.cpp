#include <checkpoint/formats/safetensors_index.h>
#include <checkpoint/formats/tree_flatten.h>
#include <checkpoint/module_copies.h>
#include <checkpoint/module_entry.h>
#include <checkpoint/prepared_file.h>
#include <checkpoint/replica_check.h>
#include <checkpoint/state_dict.h>
#include <common/text.h>
#include <ddp/checkpoint/checkpoint.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/module_state.h>
#include <ddp/process_group/agreement/on_rank_0.h>
#include <ddp/process_group/agreement/rank_report.h>
#include <ddp/process_group/process_group_impl.h>
#include <torch/nn/module.h>

namespace ddp {

void save_checkpoint(
    const std::string& path,
    const torch::nn::Module& module,
    const ProcessGroup& group) {
  const detail::heartbeat::Activity activity("save_checkpoint", path);
  detail::check_extension(path);
  detail::check_gpu_results(group);
  detail::check_replicas({{"", &module}}, {}, group);
  detail::on_rank_0("save_checkpoint", group, [&] {
    write_checkpoint_file(
        path, detail::to_generic_dict(detail::detached_state(module)));
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
  // A file that fits rank 0's module must fit the other ranks' modules.
  verify_same_model(unique_state(detail::unwrapped(module)), "", group);
  detail::Copies copies;
  IncompatibleKeys keys;
  const auto read = [&] {
    std::vector<std::string> omitted;
    const auto content = detail::read_checkpoint(path, options, &omitted);
    const auto state = detail::module_entry(
        content, options.entry(), detail::named_state(module).keys(), omitted);
    copies = detail::plan_copies(
        detail::with_shard_number(path),
        state.tensors,
        module,
        options.strict() ? nullptr : &keys,
        state.others);
  };
  if (options.every_rank_reads()) {
    detail::on_each_rank("load_checkpoint", group, read);
    detail::make_copies(copies);
    return keys;
  }
  detail::check_same_call(c10::str("load_checkpoint(\"", path, "\")"), group);
  detail::on_rank_0("load_checkpoint", group, [&] {
    read();
    // Frees the file's values before the broadcast, which needs as much memory.
    detail::make_copies(std::exchange(copies, {}));
  });
  if (group.size() > 1) {
    broadcast_module_state(detail::unwrapped(module), group);
    if (!options.strict()) { // only rank 0 knows the keys
      keys = {
          split_lines(group.broadcast(detail::join_lines(keys.missing_keys))),
          split_lines(
              group.broadcast(detail::join_lines(keys.unexpected_keys)))};
    }
  }
  return keys;
}

} // namespace ddp
