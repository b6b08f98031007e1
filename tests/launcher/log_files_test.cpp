// The options for output, with real ranks.
#include <tests/support/catch_plain.h>

#include <sys/mount.h>
#include <sys/resource.h>

#include <common/text.h>
#include <launcher/output/screen.h>
#include <tests/launcher/launched_job.h>
#include <tests/launcher/multiplexer_fixture.h>
#include <tests/support/skip.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::log_files_test {

namespace fs = std::filesystem;

// The folder of the only run.
fs::path run_in(const TemporaryFolder& folder) {
  REQUIRE(folder.names().size() == 1);
  return folder / *folder.names().begin();
}

TEST_CASE("each attempt has its files, and each run its folder", "[output]") {
  const TemporaryFolder folder;
  const auto run = [&] {
    LaunchedJob job = shell(
        "--nproc-per-node 2 --redirects 3 --max-restarts 1 --log-dir '" +
            folder.path() + "'",
        "echo attempt $TORCHELASTIC_RESTART_COUNT >&2; [ $RANK = 0 ] || exit 7;"
        " exec sleep 60");
    CHECK(job.wait() == 7);
    CHECK(job.out().empty());
    // The report has the last attempt's output, although it went into files.
    CHECK_THAT(
        job.err(), Has("stderr: attempt 1\n  others: rank 0 was stopped"));
    CHECK_THAT(job.err(), Has("  logs: " + folder.path()));
  };
  run();
  for (const char* attempt : {"0", "1"}) {
    CHECK(
        read_text(
            run_in(folder) / (std::string("attempt_") + attempt) / "1" /
            "stderr.log") == std::string("attempt ") + attempt + "\n");
  }
  for (const char* made : {"", "attempt_1/1"}) {
    CHECK(fs::status(run_in(folder) / made).permissions() == fs::perms(0700));
  }
  run();
  CHECK(folder.names().size() == 2);
}

TEST_CASE("a full disk costs the log, not the job", "[output]") {
  const TemporaryFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    skip("no tmpfs may be mounted here");
  }
  {
    LaunchedJob job = shell(
        "--nproc-per-node 2 -r 3 --log-dir '" + folder.path() + "'",
        "head -c 1000000 /dev/zero; [ $RANK = 0 ] || exit 5; exec sleep 60");
    CHECK(job.wait() == 5);
    CHECK_THAT(job.err(), Has("No space left on device"));
    CHECK(count_of(job.err(), "No space left") <= 2); // once per file
  }
  umount(folder.path().c_str());
}

TEST_CASE("a limit of file sizes costs output, not the job", "[output]") {
  const TemporaryFolder folder;
  const std::string shown = folder / "shown";
  JobSetup setup;
  setup.before_exec = [&] {
    const rlimit limit{100000, 100000};
    setrlimit(RLIMIT_FSIZE, &limit);
    dup2(open(shown.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
  };
  LaunchedJob job = shell(
      "--nproc-per-node 3 -t 1 --log-dir '" + folder / "logs" + "'",
      "seq 1 30000; head -c 1000000 /dev/zero >'" + folder.path() +
          "/'$RANK; [ $? = 153 ]", // by SIGXFSZ, which ranks do not ignore
      setup);
  CHECK(job.wait() == 0);
  CHECK(count_of(job.err(), "cannot write the log file ") == 3);
  CHECK_THAT(
      job.err(), Has("cannot write to standard output (File too large)"));
}

// Files of this process cannot grow beyond this size, as on a full disk.
class FileLimit {
 public:
  explicit FileLimit(rlim_t size) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{size, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_ = std::signal(SIGXFSZ, SIG_IGN);
};

TEST_CASE("files that were full get later output", "[unit]") {
  const bool is_one = GENERATE(true, false); // as > out 2>&1
  const TemporaryFolder folder;
  const auto create = [](const std::string& path) {
    return FileDescriptor(
        open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
  };
  const std::string errors = folder / (is_one ? "out" : "err");
  const FileDescriptor out = create(folder / "out");
  const FileDescriptor err = create(errors);
  Screen screen(out.get(), err.get(), kLong);
  {
    const FileLimit limit(4);
    screen.message("ddprun: the rest of this is lost");
    screen.flush();
  }
  CHECK(screen.all_written()); // else ddprun would wait for ever
  screen.message("ddprun: news");
  screen.flush();
  CHECK(
      read_text(errors) ==
      "ddpr\nddprun: output is missing here (File too large)\n"
      "ddprun: news\n");
}

TEST_CASE("the prefix is a template", "[output]") {
  LaunchedJob job = shell(
      "--nproc-per-node 2 --role trainer --log-line-prefix '<${role_name} "
      "${rank} ${host}> '",
      "echo hello");
  CHECK(job.wait() == 0);
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  for (const std::string rank : {"0", "1"}) {
    CHECK(
        count_of(job.out(), "<trainer " + rank + " " + host + "> hello\n") ==
        1);
  }
}

TEST_CASE("a terminal of its own keeps a rank from buffering", "[output]") {
  LaunchedJob job = shell(
      "--nproc-per-node 2 --output pty",
      "[ -t 1 ] && [ -t 2 ] && [ ! -t 0 ] && echo terminal; kill -9 $$");
  CHECK(job.wait() == 128 + SIGKILL);
  CHECK(count_of(job.out(), "terminal\n") >= 1);
  CHECK(count_of(job.out(), "\r") == 0);
}

TEST_CASE("raw ranks write to ddprun's own streams", "[output]") {
  LaunchedJob job = shell(
      "--nproc-per-node 2 --output raw",
      "readlink /proc/$PPID/fd/1; readlink /proc/self/fd/1");
  CHECK(job.wait() == 0);
  const auto lines = split_lines(job.out());
  REQUIRE(lines.size() == 4);
  for (const std::string& line : lines) {
    CHECK(line == lines[0]);
    CHECK(line.rfind("pipe:", 0) == 0);
  }
}

TEST_CASE("the report comes last, also behind a slow reader", "[output]") {
  LaunchedJob job = shell(
      "--nproc-per-node 2",
      "i=0; while [ $i -lt 20000 ]; do echo line $i >&2; i=$((i+1)); done; "
      "[ $RANK = 0 ] && exec sleep 60; exit 3");
  CHECK(job.wait() == 3);
  const auto lines = split_lines(job.err());
  REQUIRE(lines.size() > 7);
  CHECK_THAT(lines[lines.size() - 7], Has("ddprun: rank 1 (pid "));
  CHECK(lines[lines.size() - 6] == "  stderr: line 19995");
  CHECK(lines.back() == "  others: rank 0 was stopped");
}

// Prefixes, last lines and log files.

TEST_CASE("a line's prefix follows its template", "[unit]") {
  CHECK(prefix_of("-") == "[7] ");
  CHECK(prefix_of("").empty());
  CHECK(prefix_of("${rank}/${local_rank}: ") == "7/3: ");
  CHECK(
      prefix_of("${role}${role_name}@${host}.${node}") ==
      "trainertrainer@box.1");
  CHECK(prefix_of("${what} $rank ${rank") == "${what} $rank ${rank");
}

TEST_CASE("a prefix tells the time of each line", "[unit]") {
  OutputOptions options;
  options.line_prefix = "<${time}|${rank}> ";
  LinePrefix prefix(options, kTwoRanks, {1, 1, Stream::kOut, 0});
  std::tm day{};
  day.tm_year = 120;
  day.tm_mday = 2;
  day.tm_isdst = -1;
  day.tm_hour = 13;
  day.tm_min = 4;
  day.tm_sec = 59;
  const std::time_t now = std::mktime(&day);
  CHECK(prefix.text(now) == "<13:04:59|1> ");
  CHECK(prefix.text(now + 1) == "<13:05:00|1> ");
}

TEST_CASE("the last lines are few and short", "[unit]") {
  LastLines last;
  CHECK(last.lines().empty());
  for (int i = 0; i < 5000; ++i) {
    last.add("line " + std::to_string(i));
  }
  REQUIRE(last.lines().size() == LastLines::kLines);
  CHECK(last.lines().front() == "line 4980");
  CHECK(last.lines().back() == "line 4999");
  last.add(std::string(10000, 'x') + "end");
  REQUIRE(last.lines().size() == LastLines::kLines);
  CHECK(last.lines().back() == std::string(LastLines::kBytes - 3, 'x') + "end");
}

TEST_CASE("a log file is its owner's, and several may write it", "[unit]") {
  const TemporaryFolder folder;
  const auto report = [](const std::string& text) { FAIL(text); };
  LogFile one(folder / "a/b.log", report);
  LogFile other(folder / "a/b.log", report);
  one.write("unfinished ");
  other.write("line\n");
  one.write("next\n");
  CHECK(read_text(folder / "a/b.log") == "unfinished line\nnext\n");
  CHECK(fs::status(folder / "a").permissions() == fs::perms(0700));
  CHECK(fs::status(folder / "a/b.log").permissions() == fs::perms(0600));
}

TEST_CASE("a log file that cannot be written is said once", "[unit]") {
  Texts reports;
  const auto report = [&](const std::string& text) { reports.push_back(text); };
  LogFile full("/dev/full", report);
  full.write("one\n");
  full.write("two\n");
  REQUIRE(reports.size() == 1);
  CHECK_THAT(
      reports[0], Has("cannot write the log file /dev/full (No space left"));
  LogFile none("/dev/null/folder/file", report);
  none.write("one\n");
  REQUIRE(reports.size() == 2);
  CHECK_THAT(reports[1], Has("Not a directory"));
}

TEST_CASE("a log file takes bytes again when it can", "[unit]") {
  const TemporaryFolder folder;
  std::ofstream(folder / "logs") << "in the way";
  int reports = 0;
  LogFile file(folder / "logs/a.log", [&](const std::string&) { ++reports; });
  file.write("lost\n");
  fs::remove(folder / "logs");
  fs::create_directory(folder / "logs");
  file.write("kept\n");
  CHECK(read_text(folder / "logs/a.log") == "kept\n");
  CHECK(reports == 1);
}

} // namespace ddp::test::log_files_test
