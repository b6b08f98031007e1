#pragma once

#include <common/file_descriptor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddp::detail {

/// A checkpoint in a folder: "step-120.pt", or "step-120_metric-0.93.pt".
struct FolderEntry {
  int64_t step = 0;
  std::optional<double> metric;
  std::string path;
};

/// Which of a folder's checkpoints stay.
struct Retention {
  int64_t last = 1;
  int64_t best = 0;
  bool higher_is_better = true;
};

/// The checkpoints of one run. For one process at a time; what fails throws
/// `c10::Error`.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path);

  const std::string& path() const {
    return path_;
  }

  /// Throws where something that is no folder stands there or on the way to it,
  /// and warns where nothing can be written there.
  void look() const;

  /// What is there, the newest step first; other files are passed over.
  std::vector<FolderEntry> entries() const;

  /// Where a step's checkpoint is to be written; the folder is made.
  FolderEntry new_entry(
      int64_t step,
      std::optional<double> metric,
      const std::string& extension) const;

  /// Claims the folder, which has to be there, for writing as long as this
  /// lives: `take`, and a lock. Throws where another process, or another
  /// manager of this one, holds the lock, unless this epoch follows on an
  /// earlier one of the job: then it may be a rank's that was cut off and does
  /// not end.
  void claim();

  /// Takes the folder for this process's epoch, which DDP_EPOCH says ("JOB:N")
  /// and the file ".epoch" there keeps; with `only_own_job` none of another
  /// job, for who only reads, or has no lock. Throws where a later epoch of the
  /// job, or another job, has taken it since: that goes on without this
  /// process. Nothing without DDP_EPOCH, or where the folder is not there.
  void take(bool only_own_job = false);

  /// Lets the link "latest" name the checkpoint at `path`.
  void set_latest(const std::string& path) const;

  /// Says of one that it does not verify: it counts for nothing and stays.
  void set_damaged(const std::string& path) {
    damaged_.insert(path);
  }

  /// Removes what need not stay beside `newest`, other files of its step, and
  /// what killed processes left, once `newest` verifies.
  void remove_others(const FolderEntry& newest, const Retention& retention);

 private:
  std::vector<std::filesystem::path> files() const;
  bool lock();

  std::string path_;
  std::set<std::string> damaged_;
  FileDescriptor lock_;
  std::string taken_by_; // what it wrote there
  bool succeeds_ = false; // on an earlier epoch
};

} // namespace ddp::detail
