#pragma once

namespace ddp::test {

/// Ends this process with a stack trace on stderr when the harness sends
/// SIGABRT, so that a test that hangs says where.
void install_watchdog();

} // namespace ddp::test
