#include <checkpoint/checkpoint_folder.h>
#include <checkpoint/prepared_file.h>
#include <checkpoint/replica_check.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/checkpoint/checkpoint_manager.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/agreement/broadcast_value.h>
#include <ddp/process_group/agreement/on_rank_0.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/support/error_text.h>
#include <ddp/support/snapshot_memory.h>

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <filesystem>
#include <future>

namespace ddp {

struct DDP_LOCAL CheckpointManager::Impl {
  Impl(
      const std::string& path,
      TrainingState&& own_state,
      const ProcessGroup& own_group,
      const CheckpointManagerOptions& own_options)
      : folder(path),
        state(std::move(own_state)),
        group(own_group),
        options(own_options) {
    const auto& extension = options.extension();
    DDP_CHECK_VALUE(
        extension == ".pt" || extension == ".pth" ||
            extension == ".safetensors",
        "CheckpointManager: extension is '{}', expected .pt, .pth or "
        ".safetensors",
        extension);
    DDP_CHECK_VALUE(
        options.keep_last() >= 1 && options.keep_best() >= 0,
        "CheckpointManager: keep_last is {}, expected 1 or more, and "
        "keep_best is {}, expected 0 or more",
        options.keep_last(),
        options.keep_best());
    if (group.rank() == 0) {
      folder.look();
    }
  }

  /// Returns the write, for rank 0. If asynchronous, copies the values now.
  std::function<void()> prepare(
      const c10::IValue& value,
      int64_t step,
      std::optional<double> metric);
  void check_later_steps(int64_t step) const;
  /// Finds the newest intact checkpoint and its value, on rank 0.
  std::optional<LoadedCheckpoint> find(std::optional<c10::IValue>& value);

  detail::CheckpointFolder folder;
  TrainingState state;
  ProcessGroup group;
  CheckpointManagerOptions options;
  /// The highest step that this run wrote, loaded or found corrupt.
  int64_t last_step = -1;
  /// The step that this run last wrote or loaded.
  int64_t newest_step = 0;
  /// On rank 0: copies of the values, and the result of their write.
  detail::SnapshotMemory memory;
  std::future<void> writing;
};

void CheckpointManager::Impl::check_later_steps(int64_t step) const {
  const auto entries = folder.entries();
  DDP_CHECK(
      entries.empty() || entries[0].step <= std::max(step, last_step) ||
          detail::ProcessGroupImpl::of(group).repeats_steps,
      "'{}' has a checkpoint of step {} that this run did not load; cannot "
      "save step {}; call load() first, remove the later checkpoints to go "
      "back to an earlier step, or choose another folder",
      folder.path(),
      entries[0].step,
      step);
}

std::function<void()> CheckpointManager::Impl::prepare(
    const c10::IValue& value,
    int64_t step,
    std::optional<double> metric) {
  const auto entry = folder.new_entry(step, metric, options.extension());
  folder.claim();
  check_later_steps(step);
  DDP_CHECK_VALUE(
      step >= newest_step,
      "CheckpointManager: step {} follows step {}, but load() considers the "
      "highest step the newest",
      step,
      newest_step);
  newest_step = step;
  last_step = std::max(last_step, step);
  memory.begin();
  const auto write = detail::prepare_checkpoint_file(
      entry.path,
      value,
      options.asynchronous() ? &memory : nullptr,
      {},
      [this] { folder.take(); });
  return [this, entry, write] {
    write();
    folder.take(); // again: flushing the folder may have taken long
    folder.set_latest(entry.path);
    folder.prune(
        entry,
        {options.keep_last(), options.keep_best(), options.higher_is_better()});
  };
}

namespace {

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

/// Whether a checkpoint is intact. Verification needs no memory.
bool is_whole(const std::string& path) {
  try {
    verify_checkpoint_file(path);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

} // namespace

std::optional<LoadedCheckpoint> CheckpointManager::Impl::find(
    std::optional<c10::IValue>& value) {
  LoadedCheckpoint found;
  for (const auto& entry : folder.entries()) {
    last_step = std::max(last_step, entry.step);
    try {
      value = read_checkpoint_file(entry.path, options.load());
    } catch (const c10::Error& error) {
      if (is_whole(entry.path)) { // memory ran out, for example
        throw;
      }
      folder.set_corrupt(entry.path);
      found.skipped.push_back(detail::error_text(error));
      TORCH_WARN("ddp: a checkpoint is skipped: ", found.skipped.back());
      continue;
    }
    found.step = entry.step;
    newest_step = entry.step;
    const std::filesystem::path given = folder.path();
    found.path = (given / file_name(entry.path)).string();
    return found;
  }
  DDP_CHECK(
      found.skipped.empty(),
      "none of the checkpoints in '{}' can be read; to start over, move the "
      "checkpoints to another folder\n  {}",
      folder.path(),
      c10::Join("\n  ", found.skipped));
  return std::nullopt;
}

namespace {

/// Returns rank 0's `found` on all ranks.
std::optional<LoadedCheckpoint> broadcast(
    const std::optional<LoadedCheckpoint>& found,
    const ProcessGroup& group) {
  c10::IValue value;
  if (found) {
    value =
        c10::ivalue::Tuple::create({found->step, found->path, found->skipped});
  }
  value = detail::broadcast_value(value, group);
  if (value.isNone()) {
    return std::nullopt;
  }
  const auto& parts = value.toTupleRef().elements();
  LoadedCheckpoint result{parts[0].toInt(), parts[1].toStringRef(), {}};
  for (const c10::IValue& reason : parts[2].toListRef()) {
    result.skipped.push_back(reason.toStringRef());
  }
  return result;
}

} // namespace

CheckpointManager::CheckpointManager(
    const std::string& folder,
    TrainingState state,
    const ProcessGroup& group,
    const CheckpointManagerOptions& options)
    : impl_(std::make_unique<Impl>(folder, std::move(state), group, options)) {}

CheckpointManager::~CheckpointManager() {
  if (!impl_->writing.valid()) {
    return;
  }
  try {
    impl_->writing.get();
  } catch (const std::exception& error) {
    TORCH_WARN(
        "ddp: the last checkpoint was not written: ",
        detail::error_text(error));
  }
}

void CheckpointManager::save(int64_t step, std::optional<double> metric) {
  const detail::heartbeat::Activity activity("CheckpointManager::save");
  const auto call = detail::format(
      "CheckpointManager::save of step {} in '{}'", step, impl_->folder.path());
  detail::check_same_call(call, impl_->group);
  DDP_CHECK_VALUE(step >= 0, "{}: expected 0 or more", call);
  wait();
  const auto value = impl_->state.state_dict(impl_->group);
  detail::on_rank_0("CheckpointManager::save", impl_->group, [&] {
    auto write = impl_->prepare(value, step, metric);
    if (impl_->options.asynchronous()) {
      impl_->writing = std::async(std::launch::async, std::move(write));
    } else {
      write();
    }
  });
}

void CheckpointManager::wait() {
  if (!impl_->options.asynchronous()) {
    return;
  }
  const detail::heartbeat::Activity activity("CheckpointManager::wait");
  detail::on_rank_0("CheckpointManager::save", impl_->group, [&] {
    if (impl_->writing.valid()) {
      impl_->writing.get();
    }
  });
}

std::optional<LoadedCheckpoint> CheckpointManager::load() {
  const detail::heartbeat::Activity activity("CheckpointManager::load");
  detail::check_not_forgotten(
      impl_->group,
      "CheckpointManager",
      "each rank gets the state that rank 0 saved, including its random "
      "numbers");
  detail::check_same_call(
      c10::str("CheckpointManager::load in '", impl_->folder.path(), "'"),
      impl_->group);
  wait();
  std::optional<LoadedCheckpoint> found;
  std::optional<c10::IValue> value; // on rank 0
  detail::on_rank_0("CheckpointManager::load", impl_->group, [&] {
    try {
      // If this job has saved to the folder, no earlier epoch of this job
      // writes to the folder after this call.
      impl_->folder.take(/*only_own_job=*/true);
    } catch (const std::exception& error) { // a read-only folder
      TORCH_WARN_ONCE("ddp: ", detail::error_text(error));
    }
    found = impl_->find(value);
  });
  found = broadcast(found, impl_->group);
  if (found) {
    // Ranks on other disks have other working folders.
    impl_->state.load_file(
        impl_->folder.path_of(file_name(found->path)),
        impl_->group,
        impl_->options.load(),
        std::move(value));
  }
  return found;
}

} // namespace ddp
