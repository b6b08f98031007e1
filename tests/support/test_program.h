#pragma once

#include <string>

namespace ddp::test {

/// Runs test cases like Catch2's main function. Returns the program's exit
/// code, which is kSkippedCode if a case was skipped and none failed. With
/// `--write-cases FILE`, writes a call of tests/cases.cmake's ddp_case() for
/// each test case instead.
int run_cases(int argc, char** argv);

/// Whether an assertion, REQUIRE or CHECK, has failed in this process.
bool has_failed();

/// The Catch2 filter that matches only the test case with this name.
std::string test_spec(const std::string& name);

} // namespace ddp::test
