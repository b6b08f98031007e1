#pragma once

#include <string>

namespace ddp::test {

/// Runs test cases as Catch2 does. Returns the program's exit code, which is
/// kSkippedCode if a case was skipped and none failed. With `--write-cases
/// FILE`, writes a call of tests/cases.cmake's ddp_case() for each test case
/// instead.
int run_cases(int argc, char** argv);

/// Whether an assertion has failed in this process, even of a CHECK.
bool has_failed();

/// A test case's name as Catch2's filter that matches it alone.
std::string test_spec(const std::string& name);

} // namespace ddp::test
