#pragma once

#include <ddp/checkpoint/training_state.h>
#include <ddp/internal/export.h>
#include <ddp/process_group.h>
#include <torch/arg.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddp {

struct CheckpointManagerOptions {
  /// The newest that stay in the folder.
  TORCH_ARG(int64_t, keep_last) = 3;

  /// The best that stay besides, of those saved with a metric.
  TORCH_ARG(int64_t, keep_best) = 0;

  /// Whether a higher metric is the better one (accuracy) or a lower (loss).
  TORCH_ARG(bool, higher_is_better) = true;

  /// The format: ".pt", ".pth" or ".safetensors".
  TORCH_ARG(std::string, extension) = ".pt";

  /// `save` returns when the tensors are copied to memory on the CPU; a thread
  /// of rank 0 writes them.
  TORCH_ARG(bool, asynchronous) = false;

  TORCH_ARG(LoadOptions, load);
};

/// What `CheckpointManager::load` found.
struct LoadedCheckpoint {
  int64_t step = 0;
  std::string path;
  /// The newer ones that are damaged, each with the reason.
  std::vector<std::string> skipped;
};

/// The checkpoints of a run, in a folder of its own:
///
/// ```
/// ddp::CheckpointManager checkpoints("runs/7", state, group);
/// checkpoints.load();       // where there are some: the run goes on
/// ...
///   checkpoints.save(step); // now and then
/// ```
///
/// Each is a file by the number of its step ("step-120.pt"), and the link
/// "latest" names the newest. Rank 0 writes; a file is there as a whole or not
/// at all. Old ones are removed once the new one was read back and is right, so
/// that a good one is always left.
class DDP_API CheckpointManager {
 public:
  /// The parts of `state` have to live as long as the manager. Rank 0 looks at
  /// the folder, which need not be there yet. Throws `c10::ValueError` for
  /// options that cannot be, and on rank 0 if the path is not a folder's; warns
  /// if nothing can be saved there. Not collective.
  CheckpointManager(
      const std::string& folder,
      TrainingState state,
      const ProcessGroup& group = {},
      const CheckpointManagerOptions& options = {});
  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;

  /// Waits until what is being written is on the disk; a failure is a warning
  /// then. Without communication.
  ~CheckpointManager();

  /// Writes the checkpoint of a step, which replaces an earlier one of the same
  /// step. `metric`: how good it is, for `keep_best`; rank 0's counts.
  ///
  /// Collective: every rank returns when the file is on the disk (or, if
  /// asynchronous, the values are copied) or throws `c10::Error` with rank 0's
  /// reason; if asynchronous, that of the save before, for which it waits
  /// first: one is being written at most. That has to end within the group's
  /// timeout. Throws also if ranks give different steps or folders, if another
  /// process writes to the folder, if `step` is less than that of the save or
  /// load before, and if the folder has later steps that were not loaded: they
  /// are of another run, which `load` would take for newer.
  void save(int64_t step, std::optional<double> metric = std::nullopt);

  /// Loads the newest checkpoint that is whole, and says by a warning which
  /// newer ones are not. Returns nothing if there is none at all.
  ///
  /// Collective: every rank throws the same `c10::Error` if all are damaged, if
  /// one is whole and does not fit (see `TrainingState::load`), or if ranks
  /// gave different folders.
  std::optional<LoadedCheckpoint> load();

  /// Returns when all that was saved is on the disk. Collective: throws as
  /// `save` does.
  void wait();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ddp
