#pragma once

#include <string_view>

namespace ddp::detail {

/// Stores the value of TORCHELASTIC_ERROR_FILE, the file in which a launcher
/// looks for the reason of this process's end. Returns false if the variable
/// names no file.
bool find_error_file();

/// As above, for an open file. Its contents are kept, and no process may read
/// it before this one has ended.
void use_error_file(int descriptor);

/// RANK, as set by the launcher; may be empty.
const char* launched_rank();

/// Whether this process, or another one on its behalf, has written the file.
bool has_error_report();

/// Writes the file, which other processes see complete or not at all. Does
/// nothing if there is no file, or in a forked child process.
/// Async-signal-safe.
void write_error_report(std::string_view text);

} // namespace ddp::detail
