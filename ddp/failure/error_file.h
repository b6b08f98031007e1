#pragma once

#include <string_view>

namespace ddp::detail {

/// Notes what the environment says now of the file in which a launcher looks
/// for the reason of this process's end, TORCHELASTIC_ERROR_FILE. False if it
/// names none.
bool find_error_file();

/// The same for an open file, which keeps what it has already and which no one
/// reads before this process has ended.
void use_error_file(int descriptor);

/// RANK, as the launcher set it; maybe empty.
const char* launched_rank();

/// Whether this process, or someone in its place, has written the file.
bool has_error_report();

/// Writes the file, which others see whole or not at all. Nothing happens where
/// there is none, or in a child process that was forked. For signal handlers
/// too.
void write_error_report(std::string_view text);

} // namespace ddp::detail
