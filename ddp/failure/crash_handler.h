#pragma once

namespace ddp::detail {

/// Installs handlers that report a crash by SIGSEGV, SIGBUS, SIGFPE, SIGILL or
/// SIGABRT in the file that TORCHELASTIC_ERROR_FILE names, with the stack of
/// the thread that got the signal. Recorded collectives are written to a
/// separate file. The signal then ends the process as it would without the
/// handler. An existing report in the file is kept.
///
/// Signals that already have a handler are not changed. A stack overflow is
/// reported only on the thread that calls this function. Call `find_error_file`
/// first.
void report_crashes();

} // namespace ddp::detail
