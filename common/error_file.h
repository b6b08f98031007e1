#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddp {

/// What a rank wrote into the file that TORCHELASTIC_ERROR_FILE names: ddp for
/// exceptions that no one caught and for crashes, Python's
/// `torch.distributed.elastic` for exceptions of functions under `record`.
struct ErrorFile {
  std::string message;
  /// Where it happened, a frame a line; may be empty.
  std::string stack;
  /// When it was written, in nanoseconds since the epoch.
  int64_t time_ns = 0;
  /// The rank says that another one's failure was the reason.
  bool is_consequence = false;
  /// Reductions that the rank had completed, and what it did or had done last,
  /// where ddp wrote the file.
  std::optional<int64_t> step;
  std::string activity;
};

/// Reads an error file; none if it is not there, larger than 1 MiB, or not in
/// that form. Frames of `program` are named (see symbols.h), and C++ names in
/// the stack demangled.
std::optional<ErrorFile> read_error_file(
    const std::string& path,
    const std::string& program = "");

/// Whether a text is what libraries say when another process has gone: gloo,
/// NCCL, c10d's store, MPI, sockets.
bool tells_of_another(const std::string& text);

} // namespace ddp
