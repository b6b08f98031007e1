// The exit code of a skipped test case, for CTest.
#include <tests/support/catch_plain.h>
#include <tests/support/skip.h>

#include <sys/wait.h>

namespace ddp::test::skip_test {

TEST_CASE("to be skipped", "[.]") {
  skip("on purpose");
}

TEST_CASE("to fail and be skipped", "[.]") {
  CHECK(false);
  skip("on purpose");
}

TEST_CASE("a case that is skipped is no pass, and hides no failure") {
  const auto code_of = [](const std::string& name) {
    const auto program = std::filesystem::read_symlink("/proc/self/exe");
    const auto command = "'" + program.string() + "' '" + name + "'";
    return WEXITSTATUS(std::system(command.c_str()));
  };
  CHECK(code_of("to be skipped") == kSkippedCode);
  const int code = code_of("to fail and be skipped");
  CHECK(code != kSkippedCode);
  CHECK(code != 0);
}

} // namespace ddp::test::skip_test
