#include <ddp/checkpoint/checkpoint_file.h>

#include <checkpoint/prepared_file.h>
#include <ddp/checkpoint/training_state.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/process_group/agreement/broadcast_value.h>
#include <ddp/process_group/agreement/on_rank_0.h>

#include <c10/util/Exception.h>

#include <filesystem>

namespace ddp {

void TrainingState::save(const std::string& path, const ProcessGroup& group)
    const {
  const detail::heartbeat::Activity activity("TrainingState::save", path);
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
  const detail::heartbeat::Activity activity("TrainingState::load", path);
  std::string found;
  detail::on_rank_0("TrainingState::load", group, [&] {
    found = std::filesystem::exists(path) ? path : "";
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
  // What does not fit on one rank changes nothing on any.
  Commits commits;
  const auto step = [&](const std::function<void()>& work) {
    detail::on_each_rank(kOperation, group, [&] {
      try {
        work();
      } catch (const c10::Error& error) {
        TORCH_CHECK(false, "'", path, "': ", error.what_without_backtrace());
      }
    });
  };
  step([&] { commits = plan(*read, group); });
  step([&] { detail::run_all(commits.unchecked); });
  step([&] { detail::run_all(commits.checked); });
}

} // namespace ddp
