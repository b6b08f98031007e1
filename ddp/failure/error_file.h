#pragma once

#include <string_view>

namespace ddp::detail {

/// Stores the value of TORCHELASTIC_ERROR_FILE, the file in which a launcher
/// looks for the reason why this process ended. Returns false if the variable
/// names no file.
bool find_error_file();

/// Same as above, for an open file. The file's contents are kept, and no
/// process may read the file before this process has ended.
void use_error_file(int descriptor);

/// The value of RANK, as set by the launcher; may be empty.
const char* launched_rank();

/// Whether this process, or another process on its behalf, has written the
/// file.
bool has_error_report();

/// Writes the file atomically. Does nothing if no file is set, or in a forked
/// child process. Async-signal-safe.
void write_error_report(std::string_view text);

} // namespace ddp::detail
