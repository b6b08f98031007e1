#pragma once

namespace ddp::test {

/// Runs test cases as Catch2 does; the program's exit code, which is
/// kSkippedCode where one was skipped and none failed. With `--write-cases
/// FILE` it writes a call of tests/cases.cmake's ddp_case() for each test case
/// instead.
int run_cases(int argc, char** argv);

} // namespace ddp::test
