#pragma once

namespace ddp::detail {

/// From now on a crash by SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT is written
/// to the file that TORCHELASTIC_ERROR_FILE names, with the stack of the thread
/// that got the signal, and the last collectives to a file of their own where
/// they are recorded; the process then ends by it as before. A report that the
/// file has already stays.
///
/// Nothing happens to signals that someone else handles. Of stacks that are too
/// deep only the calling thread's is reported. `find_error_file` must have been
/// called.
void report_crashes();

} // namespace ddp::detail
