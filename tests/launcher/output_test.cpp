// The output of ranks.
#include <tests/support/catch_plain.h>

#include <signal.h>

#include <common/text.h>
#include <tests/launcher/launched_job.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::output_test {

// All lines of `worker lines COUNT`, whole, in order, and on their stream.
void check_lines(const std::string& text, int ranks, int count, int odd) {
  std::vector<int> next(static_cast<size_t>(ranks), odd);
  const std::regex form("\\[(\\d+)\\] rank (\\d+) line (\\d+) (x*) end");
  for (const std::string& line : split_lines(text)) {
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

TEST_CASE("a slow reader gets all output of a failed job", "[output]") {
  const TemporaryFolder folder;
  const std::string reader = folder / "reader.py";
  write_text(reader, R"(
import os, sys, time
while data := os.read(0, 20000):
    os.write(1, data)
    time.sleep(0.2)
)");
  const std::string job =
      " sh -c 'seq 1 150000; echo the reason >&2; exit 3' 2>&1 | ";
  const auto outcome = run(
      Command{
          {"bash",
           "-c",
           "set -o pipefail; '" DDPRUN_PATH "'" + job + "python3 '" + reader +
               "'"},
          {}},
      kLong);
  CHECK(outcome.exit_code == 3);
  CHECK_THAT(outcome.output, Has("\n150000\n"));
  CHECK_THAT(outcome.output, Has("the reason\n"));
  CHECK_THAT(outcome.output, Has(") exited with code 3 after "));
}

TEST_CASE("a slow reader gets all output of remote hosts", "[output]") {
  const TemporaryFolder folder;
  const std::string reader = folder / "reader.py";
  write_text(reader, R"(
import os, signal, sys, time
data = os.read(0, 20000) # ready
os.kill(int(open(sys.argv[1]).read()), signal.SIGTERM)
while data:
    os.write(1, data)
    time.sleep(0.2)
    data = os.read(0, 20000)
)");
  const std::string pid = folder / "pid";
  const auto outcome = run(
      Command{
          {"bash",
           "-c",
           R"(set -o pipefail
              (echo $BASHPID >"$1"; exec "$0" --hosts=localhost:1 sh -c '
                 trap "seq 1 150000; exit" TERM
                 echo ready; while :; do sleep 0.1; done') |
              python3 "$2" "$1")",
           DDPRUN_PATH,
           pid,
           reader},
          {}},
      kLong);
  CHECK(outcome.exit_code == 128 + SIGTERM);
  CHECK(count_of(outcome.output, "\n") >= 150001);
}

TEST_CASE("output that cannot be written is said to be lost", "[output]") {
  for (const std::string hosts : {"", "--hosts=localhost:1"}) {
    const auto outcome = run(
        Command{
            {"sh",
             "-c",
             "\"$0\" $1 sh -c 'echo lost' 2>&1 >/dev/full",
             DDPRUN_PATH,
             hosts},
            {}},
        kLong);
    CHECK(outcome.exit_code == 0);
    CHECK_THAT(
        outcome.output,
        Has("cannot write to standard output (No space left on device)"));
  }
}

TEST_CASE("a daemon that keeps the pipe open ends nothing late", "[output]") {
  LaunchedJob job = shell("", "(trap '' TERM; sleep 60) & echo started");
  CHECK(job.wait() == 0); // long before the 60 s
  CHECK(job.out() == "started\n");
}

} // namespace ddp::test::output_test
