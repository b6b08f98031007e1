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
  /// The time of the last write, if the file exists.
  std::filesystem::file_time_type written = {};
};

/// The numbers of checkpoints to keep in a folder.
struct Retention {
  int64_t last = 1;
  int64_t best = 0;
  bool higher_is_better = true;
};

/// The checkpoints of one run. For use by one process at a time; failures throw
/// `c10::Error`.
class CheckpointFolder {
 public:
  /// A relative path refers to the working folder at this call.
  explicit CheckpointFolder(std::string path);

  /// The path as passed by the caller, for messages.
  const std::string& path() const {
    return path_;
  }

  /// The absolute path of a file in the folder.
  std::string path_of(const std::string& name) const {
    return (place_ / name).string();
  }

  /// Throws if the path or one of its parents is not a folder, and warns if the
  /// folder is not writable.
  void look() const;

  /// The checkpoints in the folder, the newest step first, and the newest file
  /// of each step first; other files are ignored.
  std::vector<FolderEntry> entries() const;

  /// Returns the entry for a new checkpoint; creates the folder. Without a
  /// metric, an earlier checkpoint's metric of the step remains.
  FolderEntry new_entry(
      int64_t step,
      std::optional<double> metric,
      const std::string& extension) const;

  /// Claims the folder, which must exist, for writing while this object lives:
  /// calls `take`, and takes a lock. Throws if another process, or another
  /// manager of this process, holds the lock. A later epoch of a job does not
  /// need the lock: the lock's holder may be a disconnected rank of an earlier
  /// epoch that does not end.
  void claim();

  /// Takes the folder for this process's epoch: writes DDP_EPOCH ("JOB:N") to
  /// the file ".epoch" in the folder. With `only_own_job`, for readers and
  /// callers without the lock, does not take a folder of another job. Throws if
  /// the folder now belongs to another job or to a later epoch of this job,
  /// which continues without this process. Does nothing without DDP_EPOCH, or
  /// if the folder does not exist.
  void take(bool only_own_job = false);

  /// Points the link "latest" to the checkpoint at `path`. Warns once if the
  /// file system has no symbolic links.
  void set_latest(const std::string& path) const;

  /// Marks a checkpoint as corrupt: the checkpoint is kept, but does not count.
  void set_corrupt(const std::string& path) {
    corrupt_.insert(path);
  }

  /// Verifies `newest`, then removes checkpoints that are not retained, other
  /// files of the step of `newest`, and files that killed processes left.
  void prune(const FolderEntry& newest, const Retention& retention);

 private:
  std::vector<std::filesystem::path> files() const;
  bool lock();

  std::string path_;
  std::filesystem::path place_;
  std::set<std::string> corrupt_;
  FileDescriptor lock_;
  std::string taken_by_; // the text that this process wrote to ".epoch"
  bool succeeds_ = false; // this process follows an earlier epoch
};

} // namespace ddp::detail
