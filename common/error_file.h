#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddp {

/// The report of a rank in the file that TORCHELASTIC_ERROR_FILE names. ddp
/// writes it for uncaught exceptions and crashes; Python's
/// `torch.distributed.elastic` writes it for exceptions of functions under
/// `record`.
struct ErrorFile {
  std::string message;
  /// The stack trace, one frame per line; may be empty.
  std::string stack;
  /// The time of writing, in nanoseconds since the epoch.
  int64_t time_ns = 0;
  /// Whether the rank reports another rank's failure as the reason.
  bool is_consequence = false;
  /// The number of reductions that the rank had completed, and its current or
  /// last activity, if ddp wrote the file.
  std::optional<int64_t> step;
  std::string activity;
};

/// Reads an error file. Returns nullopt if the file is missing, larger than 1
/// MiB, or in another format. Names the frames of `program` (see symbols.h),
/// and demangles C++ names in the stack.
std::optional<ErrorFile> read_error_file(
    const std::string& path,
    const std::string& program = "");

/// Whether `text` is an error that libraries (gloo, NCCL, c10d's store, MPI,
/// ddp's shared memory) report when another process has ended.
bool tells_of_another(const std::string& text);

} // namespace ddp
