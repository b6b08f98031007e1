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

/// Options of `CheckpointManager`.
struct CheckpointManagerOptions {
  /// The number of newest checkpoints to keep.
  TORCH_ARG(int64_t, keep_last) = 3;

  /// The number of best checkpoints to keep, also if they are older than the
  /// newest: the best of all those with a metric.
  TORCH_ARG(int64_t, keep_best) = 0;

  /// Whether a higher metric is better (accuracy) or a lower one (loss).
  TORCH_ARG(bool, higher_is_better) = true;

  /// The format: ".pt", ".pth" or ".safetensors".
  TORCH_ARG(std::string, extension) = ".pt";

  /// Whether `save` returns when the tensors are copied to CPU memory; a thread
  /// of rank 0 then writes the copies.
  TORCH_ARG(bool, asynchronous) = false;

  /// Options with which `load` reads the file.
  TORCH_ARG(LoadOptions, load);
};

/// The result of `CheckpointManager::load`.
struct LoadedCheckpoint {
  int64_t step = 0; ///< The checkpoint's step, as passed to `save`.
  std::string path; ///< The file that was loaded.
  /// Newer checkpoints that are corrupt, with the reasons.
  std::vector<std::string> skipped;
};

/// The checkpoints of a training run, in a separate folder:
///
/// ```
/// ddp::CheckpointManager checkpoints("runs/7", state, group);
/// checkpoints.load();       // resumes the run if possible
/// ...
///   checkpoints.save(step); // regularly
/// ```
///
/// Each file is named after its step ("step-120.pt"); the symbolic link
/// "latest" points to the newest file. Rank 0 writes each file atomically. Old
/// files are removed only after the new file has been read back and is valid,
/// so a valid file always remains, unless the same step is saved again.
class DDP_API CheckpointManager {
 public:
  /// The parts of `state` must outlive the manager. Rank 0 reads the folder,
  /// which need not exist yet; a relative path refers to the working folder at
  /// this call. Throws `c10::ValueError` for invalid options, and on rank 0 if
  /// the path is not a folder; warns if the folder is not writable. Not
  /// collective.
  CheckpointManager(
      const std::string& folder,
      TrainingState state,
      const ProcessGroup& group = {},
      const CheckpointManagerOptions& options = {});
  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;

  /// Waits for a write in progress; a failure causes a warning. Not collective.
  ~CheckpointManager();

  /// Writes the checkpoint of a step, and replaces any earlier checkpoint of
  /// the same step, whose metric remains if `metric` is omitted. `metric` is
  /// the checkpoint's quality, for `keep_best`; rank 0's value is used.
  ///
  /// Collective: every rank returns when the file is on the disk (if
  /// asynchronous, when the values are copied) or throws `c10::Error` with rank
  /// 0's reason. The write and the reading back must take less than the group's
  /// timeout. An asynchronous `save` first waits for the previous save, within
  /// that timeout, and throws if that save failed; at most one save is in
  /// progress. Also throws if ranks pass different steps or folders, if another
  /// process writes to the folder, or if `step` is negative or less than in the
  /// previous save or load. Throws if the folder contains later steps that were
  /// not loaded, since they are from a different run and `load` would prefer
  /// them, unless `ElasticRun::sync` has restored the state.
  void save(int64_t step, std::optional<double> metric = std::nullopt);

  /// Loads the newest valid checkpoint, and warns about newer corrupt
  /// checkpoints. Returns `std::nullopt` if the folder has no checkpoint.
  ///
  /// Collective: every rank throws the same `c10::Error` if all checkpoints are
  /// corrupt, if a valid checkpoint does not fit (see `TrainingState::load`),
  /// or if ranks passed different folders.
  std::optional<LoadedCheckpoint> load();

  /// Returns when all saves are on the disk. Collective: throws as `save` does.
  void wait();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ddp
