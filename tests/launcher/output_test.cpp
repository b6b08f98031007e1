// What becomes of the ranks' output.
#include <tests/support/catch_plain.h>

#include <csignal>
#include <regex>

#include <tests/launcher/launched_job.h>

namespace output_test {

using namespace ddp::test;

namespace {

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

LaunchedJob shell(int ranks, const std::string& script) {
  return LaunchedJob(
      {"--nproc-per-node", std::to_string(ranks), "sh", "-c", script},
      {{"OMP_NUM_THREADS=1"}, "", false, nullptr});
}

} // namespace

TEST_CASE("lines of many writers stay whole", "[output]") {
  const int ranks = 8;
  const int count = 2000;
  LaunchedJob job(
      {"--nproc-per-node",
       std::to_string(ranks),
       WORKER_PATH,
       "lines",
       std::to_string(count)});
  CHECK(job.wait() == 0);
  check_lines(job.out(), ranks, count, 0);
  check_lines(job.err(), ranks, count, 1);
}

TEST_CASE("one rank's output has no prefix", "[output]") {
  LaunchedJob job = shell(1, "echo out; echo err >&2; printf partial");
  CHECK(job.wait() == 0);
  CHECK(job.out() == "out\npartial\n");
  CHECK(job.err() == "err\n");
}

TEST_CASE("a line waits for its end", "[output]") {
  LaunchedJob job = shell(
      2, "if [ $RANK = 0 ]; then printf 'a'; kill -USR1 $$; else echo b; fi");
  CHECK(job.wait() == 128 + SIGUSR1);
  CHECK(count_of(job.out(), "[0] a\n") == 1);
}

TEST_CASE("of a progress bar the last state remains", "[output]") {
  LaunchedJob job =
      shell(2, "printf '10%%\\r20%%\\r'; printf '30%%\\n'; printf 'x\\ry\\r'");
  CHECK(job.wait() == 0);
  for (const char* line : {"[0] 30%\n", "[0] y\n", "[1] 30%\n", "[1] y\n"}) {
    CHECK(count_of(job.out(), line) == 1);
  }
  CHECK(lines_of(job.out()).size() == 4);
}

TEST_CASE("long lines of one rank arrive as they are", "[output]") {
  LaunchedJob job = shell(1, "head -c 300000 /dev/zero; echo; echo next");
  CHECK(job.wait() == 0);
  CHECK(job.out() == std::string(300000, '\0') + "\nnext\n");
}

TEST_CASE("long lines of several ranks come in marked pieces", "[output]") {
  LaunchedJob job = shell(2, "head -c 300000 /dev/zero | tr '\\0' $RANK; echo");
  CHECK(job.wait() == 0);
  std::vector<size_t> sizes(2, 0);
  for (const std::string& line : lines_of(job.out())) {
    REQUIRE(line.size() > 4);
    const char rank = line[1];
    REQUIRE((rank == '0' || rank == '1'));
    const std::string text = line.substr(4);
    REQUIRE(line.substr(0, 4) == std::string("[") + rank + "] ");
    REQUIRE(text.find_first_not_of(rank) == std::string::npos);
    sizes[rank == '1'] += text.size();
  }
  CHECK(sizes == std::vector<size_t>{300000, 300000});
}

TEST_CASE("output without a reader is dropped, and said to be", "[output]") {
  LaunchedJob job({"--nproc-per-node", "2", WORKER_PATH, "lines", "20000"});
  job.close_output();
  CHECK(job.wait() == 0);
  CHECK_THAT(job.err(), ContainsSubstring("cannot write to standard output"));
  CHECK(count_of(job.err(), "cannot write") == 1);
  CHECK(count_of(job.err(), " line 19999 ") == 2);
}

TEST_CASE("a reader that does not read holds up no signal", "[output]") {
  LaunchedJob job({"--nproc-per-node", "2", WORKER_PATH, "flood"});
  job.wait_until_half_full();
  job.send(SIGTERM);
  CHECK(job.wait_unread() == 128 + SIGTERM);
  CHECK(job.leaves_nothing());
}

TEST_CASE("what a rank said last is not lost", "[output]") {
  LaunchedJob job = shell(
      1, "i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done; exit 9");
  CHECK(job.wait() == 9);
  CHECK(lines_of(job.out()).size() == 2000);
}

TEST_CASE("a daemon that keeps the pipe open ends nothing late", "[output]") {
  LaunchedJob job = shell(1, "(trap '' TERM; sleep 60) & echo started");
  CHECK(job.wait() == 0); // long before the 60 s
  CHECK(job.out() == "started\n");
  CHECK(job.leaves_nothing());
}

} // namespace output_test
