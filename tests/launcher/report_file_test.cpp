// The effect of --report on an existing file.
#include <tests/support/catch_plain.h>

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <common/file_descriptor.h>
#include <launcher/cli/redaction.h>
#include <launcher/report/report.h>
#include <tests/launcher/launched_job.h>
#include <tests/launcher/option_parsing.h>
#include <tests/support/free_port.h>
#include <tests/support/skip.h>
#include <tests/support/temporary_folder.h>
#include <nlohmann/json.hpp>

namespace ddp::test::report_file_test {

namespace fs = std::filesystem;

fs::file_type type_of(const std::string& path) {
  return fs::symlink_status(path).type();
}

int code_in(const std::string& report) {
  return nlohmann::json::parse(report).at("exit_code");
}

TEST_CASE("a report goes into a device, not in its place", "[failure]") {
  const TemporaryFolder folder;
  const std::string device = folder / "null";
  if (mknod(device.c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0) {
    skip("devices cannot be made here");
  }
  LaunchedJob job(words("--report '" + device + "' false"));
  CHECK(job.wait() == 1);
  CHECK(type_of(device) == fs::file_type::character);
  CHECK(folder.names() == std::set<std::string>{"null"});
}

TEST_CASE("a report goes into a pipe, if that is read", "[failure]") {
  const bool is_read = GENERATE(true, false);
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), S_IRUSR | S_IWUSR) == 0);
  FileDescriptor reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  if (!is_read) {
    reader.reset();
  }
  LaunchedJob job(words("--report '" + pipe + "' false"));
  CHECK(job.wait() == 1);
  REQUIRE(type_of(pipe) == fs::file_type::fifo);
  if (is_read) {
    std::string text(1 << 16, '\0');
    const ssize_t size = read(reader.get(), text.data(), text.size());
    REQUIRE(size > 0);
    CHECK(code_in(text.substr(0, static_cast<size_t>(size))) == 1);
  } else {
    CHECK_THAT(job.err(), Has("the report could not be written to " + pipe));
  }
}

TEST_CASE("a report follows a link", "[failure]") {
  const TemporaryFolder folder;
  write_text(folder / "old.json", std::string(1 << 16, 'x'));
  for (const char* target : {"old.json", "new.json"}) {
    const std::string link = folder / target + ".link";
    REQUIRE(symlink(target, link.c_str()) == 0);
    LaunchedJob job(words("--report '" + link + "' false"));
    CHECK(job.wait() == 1);
    CHECK(type_of(link) == fs::file_type::symlink);
    CHECK(code_in(read_text(folder / target)) == 1);
  }
}

TEST_CASE("a report goes into a file that is mounted", "[failure]") {
  const TemporaryFolder folder;
  const std::string report = folder / "report";
  const char* path = report.c_str();
  write_text(report, "an older report");
  if (mount(path, path, nullptr, MS_BIND, nullptr) != 0) {
    skip("no file may be mounted here");
  }
  LaunchedJob job(
      {"--report", report, "sh", "-c", "[ -s \"$0\" ] || exit 3", report});
  CHECK(job.wait() == 3); // the file is empty
  umount(path);
  CHECK(code_in(read_text(report)) == 3);
  CHECK(folder.names() == std::set<std::string>{"report"});
}

TEST_CASE("a report goes into a file in a read-only folder", "[failure]") {
  const TemporaryFolder folder;
  const std::string file = folder / "report";
  write_text(file, std::string(1 << 16, 'x'));
  fs::permissions(file, fs::perms(0666));
  fs::permissions(folder.path(), fs::perms(0555));
  Process user([&] {
    if (!becomes_user(folder.path())) {
      return kSkippedCode;
    }
    const auto refusal = launch_error_of([&] { prepare_report(file); });
    const bool is_cleared = read_text(file).empty();
    JobReport report;
    report.file = file;
    report.exit_code = 3;
    std::cout << refusal << "; " << write_report(report) << std::endl;
    return is_cleared ? 0 : 1;
  });
  const auto outcome = user.finish(kLong);
  fs::permissions(folder.path(), fs::perms::owner_all);
  if (outcome.exit_code == kSkippedCode) {
    skip("no other user can be taken here");
  }
  CHECK(outcome.exit_code == 0);
  CHECK_THAT(outcome.output, Has("no error; \n"));
  CHECK(code_in(read_text(file)) == 3);
}

TEST_CASE("a report leaves the file of an equal pid elsewhere", "[failure]") {
  const TemporaryFolder folder;
  const std::string report = folder / "report";
  LaunchedJob job(
      {"--report",
       report,
       "sh",
       "-c",
       "echo other >\"$0.new-$PPID\"; exit 3",
       report});
  CHECK(job.wait() == 3);
  CHECK(code_in(read_text(report)) == 3);
  CHECK(folder.names().size() == 2);
}

TEST_CASE("a report in the output leaves that whole", "[failure]") {
  for (const bool with_errors : {false, true}) { // as > output 2>&1
    CAPTURE(with_errors);
    const TemporaryFolder folder;
    const std::string output = folder / "output";
    JobSetup setup;
    setup.before_exec = [&] {
      dup2(open(output.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
      if (with_errors) {
        dup2(STDOUT_FILENO, STDERR_FILENO);
      }
    };
    LaunchedJob job(
        words("--report /proc/self/fd/1 sh -c 'echo said; exit 3'"), setup);
    CHECK(job.wait() == 3);
    const std::string text = read_text(output);
    CAPTURE(text);
    REQUIRE_THAT(text, Has("said\n{"));
    const size_t begin = text.find('{');
    const size_t end = text.rfind('}');
    CHECK(code_in(text.substr(begin, end + 1 - begin)) == 3);
    CHECK(with_errors == (text.find("rank 0", end) != std::string::npos));
  }
}

// UBSan's check of types needs descriptors of its own.
#ifndef __SANITIZE_ADDRESS__
TEST_CASE("ranks that cannot be started are reported", "[failure]") {
  const TemporaryFolder folder;
  JobSetup few_descriptors;
  few_descriptors.before_exec = [] {
    const rlimit few{24, 24};
    setrlimit(RLIMIT_NOFILE, &few);
  };
  const std::string options =
      " --nproc-per-node 8 --report '" + (folder / "report") + "' sleep 60";
  const auto check = [&](LaunchedJob& job) {
    CHECK(job.wait() == 125);
    CHECK_THAT(job.err(), Has("Too many open files"));
    CHECK(code_in(read_text(folder / "report")) == 125);
  };
  LaunchedJob alone(words(options), few_descriptors);
  check(alone);
  const std::string nodes =
      "--nnodes 2 --rdzv-endpoint 127.0.0.1:" + std::to_string(free_port());
  LaunchedJob other(words(nodes + " sleep 60"));
  LaunchedJob job(words(nodes + options), few_descriptors);
  check(job);
  CHECK(other.wait() == 125);
  CHECK_THAT(other.err(), Has("Too many open files"));
}
#endif

TEST_CASE("an output that nobody reads holds up no report", "[failure]") {
  LaunchedJob job(words("--report /dev/stdout yes"));
  job.wait_until_half_full();
  job.send(SIGTERM);
  CHECK(job.wait_unread() == 128 + SIGTERM);
  CHECK(job.leaves_nothing());
}

TEST_CASE(
    "a report that cannot be written is refused before the job",
    "[failure]") {
  const TemporaryFolder folder;
  const std::string link = folder / "link";
  std::filesystem::create_symlink(folder / "none/report", link);
  LaunchedJob job(words("--report '" + link + "' sh -c 'echo ran'"));
  CHECK(job.wait() == 2);
  CHECK_THAT(job.out(), !Has("ran"));
}

// The output of --dry-run, and secrets that it and reports hide.

TEST_CASE("names that hold secrets are known", "[unit]") {
  for (const std::string& name :
       words("HF_TOKEN WANDB_API_KEY --api-key aws_secret_access_key "
             "DbPassword GOOGLE_APPLICATION_CREDENTIALS TOKENIZER_API_KEY")) {
    CAPTURE(name);
    CHECK(names_secret(name));
  }
  for (const char* name :
       {"TOKENIZERS_PARALLELISM", "--tokenizer", "PATH", "--epochs", ""}) {
    CAPTURE(name);
    CHECK_FALSE(names_secret(name));
  }
}

TEST_CASE("secrets in a command line are hidden", "[unit]") {
  CHECK(
      redacted_arguments(
          words("./train --api-key abc --x-token=def password=ghi "
                "--env=HF_TOKEN=jkl= --use-key --lr 0.1 --keys -1 "
                "--db=pg://me:secret@host/db http://host/a:b@c")) ==
      words("./train --api-key *** --x-token=*** password=*** "
            "--env=HF_TOKEN=*** --use-key --lr 0.1 --keys -1 "
            "--db=pg://me:***@host/db http://host/a:b@c"));
}

TEST_CASE("a rank's command line is shown", "[unit]") {
  CHECK(
      describe_rank(
          "rank 0 of 2",
          {"./train", "it's", "a b", "", "--token", "t"},
          {{"RANK", "0"}, {"NOTE", "a b"}, {"HF_TOKEN", "abc"}},
          nullptr) ==
      "# rank 0 of 2\n"
      "env RANK=0 NOTE='a b' HF_TOKEN='***' ./train 'it'\\''s' 'a b' '' "
      "--token '***'\n");
  RankPlace place;
  CPU_ZERO(&place.cpus);
  for (const int cpu : {0, 1, 2, 5, 7, 8}) {
    CPU_SET(cpu, &place.cpus);
  }
  place.memory_nodes = {0, 1};
  CHECK(
      describe_rank("rank 1 of 2", {"./train"}, {{"RANK", "1"}}, &place) ==
      "# rank 1 of 2, CPUs 0-2,5,7-8, memory of nodes 0-1\n"
      "env RANK=1 ./train\n");
}

TEST_CASE("a shell reads a word as it was", "[unit]") {
  CHECK(shell_word("a-b_c./,:=+@%9") == "a-b_c./,:=+@%9");
  for (const char* text : {"a b", "$x", "*", "'", "", "#", "~", "a\nb", "!"}) {
    const std::string word = shell_word(text);
    CAPTURE(word);
    CHECK(word.front() == '\'');
    CHECK(word.back() == '\'');
  }
}

TEST_CASE("--dry-run runs nothing", "[unit]") {
  LaunchedJob job(
      words("--dry-run --nproc-per-node 3 --master-port 0 /bin/false "
            "r${local_rank}"));
  CHECK(job.wait() == 0);
  CHECK(count_of(job.out(), "# rank ") == 3);
  for (const char* rank : {"0", "1", "2"}) {
    CHECK_THAT(job.out(), Has(std::string(" RANK=") + rank));
    CHECK_THAT(job.out(), Has(std::string("/bin/false r") + rank));
  }
  CHECK(count_of(job.out(), "DDP_STORE_FD") == 0);
}

TEST_CASE("--dry-run shows the ranks of this node", "[unit]") {
  LaunchedJob job(
      words("--dry-run --nproc-per-node=2 --nnodes=3 --node-rank=1 "
            "--rdzv-endpoint=node0 /bin/false"));
  CHECK(job.wait() == 0);
  CHECK_THAT(job.out(), Has("# rank 3 of 6\n"));
  CHECK_THAT(job.out(), Has(" GROUP_RANK=1 GROUP_WORLD_SIZE=3 "));
}

TEST_CASE("ddprun refuses to be one of several tasks", "[unit]") {
  JobSetup setup;
  setup.environment = {
      {"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "2"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  LaunchedJob rejected({"/bin/true"}, setup);
  CHECK(rejected.wait() == 2);
  CHECK_THAT(rejected.err(), Has("one of 2 tasks"));
  LaunchedJob alone(words("--standalone /bin/true"), setup);
  CHECK(alone.wait() == 0);
}

} // namespace ddp::test::report_file_test
