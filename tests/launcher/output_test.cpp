// The output of ranks.
#include <tests/support/catch_plain.h>

#include <tests/launcher/launched_job.h>

namespace ddp::test::output_test {

// All lines of `worker lines COUNT`, whole, in order, and on their stream.
void check_lines(const std::string& text, int ranks, int count, int odd) {
  std::vector<int> next(static_cast<size_t>(ranks), odd);
  const std::regex form("\\[(\\d+)\\] rank (\\d+) line (\\d+) (x*) end");
  for (const std::string& line : lines_of(text)) {
    if (line.rfind("ddprun: ", 0) == 0) {
      continue;
    }
    std::smatch match;
    INFO(line);
    REQUIRE(std::regex_match(line, match, form));
    REQUIRE(match[1] == match[2]);
    int& expected = next.at(static_cast<size_t>(std::stoi(match[1])));
    REQUIRE(std::stoi(match[3]) == expected);
    REQUIRE(match[4].length() == expected % 97);
    expected += 2;
  }
  for (int each : next) {
    CHECK(each == count + odd);
  }
}

TEST_CASE("lines of many writers stay whole", "[output]") {
  LaunchedJob job(words("--nproc-per-node 8 WORKER lines 2000"));
  CHECK(job.wait() == 0);
  check_lines(job.out(), 8, 2000, 0);
  check_lines(job.err(), 8, 2000, 1);
}

TEST_CASE("one rank's output has no prefix", "[output]") {
  LaunchedJob job = shell("", "echo out; echo err >&2; printf partial");
  CHECK(job.wait() == 0);
  CHECK(job.out() == "out\npartial\n");
  CHECK(job.err() == "err\n");
}

TEST_CASE("long lines of one rank arrive as they are", "[output]") {
  LaunchedJob job = shell("", "head -c 300000 /dev/zero; echo; echo next");
  CHECK(job.wait() == 0);
  CHECK(job.out() == std::string(300000, '\0') + "\nnext\n");
}

TEST_CASE("output without a reader is dropped, and said to be", "[output]") {
  LaunchedJob job(words("--nproc-per-node 2 WORKER lines 20000"));
  job.close_output();
  CHECK(job.wait() == 0);
  CHECK_THAT(job.err(), Has("cannot write to standard output"));
  CHECK(count_of(job.err(), "cannot write") == 1);
  CHECK(count_of(job.err(), " line 19999 ") == 2);
}

TEST_CASE("a daemon that keeps the pipe open ends nothing late", "[output]") {
  LaunchedJob job = shell("", "(trap '' TERM; sleep 60) & echo started");
  CHECK(job.wait() == 0); // long before the 60 s
  CHECK(job.out() == "started\n");
}

} // namespace ddp::test::output_test
