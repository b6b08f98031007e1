#include <checkpoint/checkpoint_file.h>
#include <checkpoint/detail/broadcast_value.h>
#include <checkpoint/detail/on_rank_0.h>
#include <checkpoint/training_state.h>

#include <c10/util/Exception.h>

#include <filesystem>

namespace ddp {

void TrainingState::save(const std::string& path, const ProcessGroup& group)
    const {
  detail::check_extension(path);
  const auto state = state_dict(group);
  detail::on_rank_0("TrainingState::save", group, [&] {
    write_checkpoint_file(path, state);
  });
}

bool TrainingState::load(
    const std::string& path,
    const ProcessGroup& group,
    const LoadOptions& options) {
  std::string found;
  detail::on_rank_0("TrainingState::load", group, [&] {
    found = std::filesystem::exists(path) ? path : "";
  });
  if (group.broadcast(found).empty()) {
    return false;
  }
  detail::load_training_state(*this, path, group, options);
  return true;
}

void detail::load_training_state(
    TrainingState& state,
    const std::string& path,
    const ProcessGroup& group,
    const LoadOptions& options) {
  c10::IValue value;
  if (!options.every_rank_reads()) {
    on_rank_0("TrainingState::load", group, [&] {
      value = read_checkpoint_file(path, options);
    });
    value = broadcast_value(value, group);
  }
  on_each_rank("TrainingState::load", group, [&] {
    if (options.every_rank_reads()) {
      value = read_checkpoint_file(path, options);
    }
    try {
      state.load_state_dict(value, group);
    } catch (const c10::Error& error) {
      TORCH_CHECK(false, "'", path, "': ", error.what_without_backtrace());
    }
  });
}

} // namespace ddp
