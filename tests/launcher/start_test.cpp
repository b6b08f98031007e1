// The environment in which a rank starts.
#include <tests/support/catch_plain.h>

#include <fcntl.h>
#include <signal.h>

#include <common/processors.h>
#include <common/text.h>
#include <launcher/sockets.h>
#include <tests/launcher/launched_job.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::start_test {

using Values = std::set<Texts>;

// The values that ranks printed for a variable.
Values values(const LaunchedJob& job, const std::string& name) {
  const auto found = matches(job.out(), "\\b" + name + "=(.*)");
  return {found.begin(), found.end()};
}

TEST_CASE("each rank gets torchrun's environment", "[start]") {
  const int ranks = GENERATE(1, 64);
  CAPTURE(ranks);
  const std::string n = std::to_string(ranks);
  Values all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.insert({std::to_string(rank)});
  }
  const std::map<std::string, Values> expected{
      {"RANK", all},
      {"LOCAL_RANK", all},
      {"ROLE_RANK", all},
      {"WORLD_SIZE", {{n}}},
      {"LOCAL_WORLD_SIZE", {{n}}},
      {"ROLE_WORLD_SIZE", {{n}}},
      {"GROUP_RANK", {{"0"}}},
      {"GROUP_WORLD_SIZE", {{"1"}}},
      {"ROLE_NAME", {{"default"}}},
      {"MASTER_ADDR", {{"127.0.0.1"}}},
      {"TORCHELASTIC_RESTART_COUNT", {{"0"}}},
      {"TORCHELASTIC_MAX_RESTARTS", {{"0"}}},
      {"TORCHELASTIC_USE_AGENT_STORE", {{"True"}}},
      {"DDP_TTY", {}},
      {"OMPI_COMM_WORLD_RANK", {}},
      {"SLURM_PROCID", {}},
      {"SLURM_JOB_ID", {{"17"}}},
      {"EMPTY", {{""}}},
      {"MINE", {{"yes"}}}};
  std::string names = " MASTER_PORT TORCHELASTIC_RUN_ID";
  for (const auto& [name, wanted] : expected) {
    names += " " + name;
  }
  JobSetup outer{
      {{"RANK", "77"},
       {"WORLD_SIZE", "78"},
       {"MASTER_PORT", "1"},
       {"DDP_TTY", "1"},
       {"OMPI_COMM_WORLD_RANK", "3"},
       {"SLURM_PROCID", "3"},
       {"SLURM_JOB_ID", "17"},
       {"MINE", "no"},
       {"TORCHELASTIC_ERROR_FILE", "/x"}}};
  outer.before_exec = [] { setenv("EMPTY", "", 1); };
  LaunchedJob job(
      words(
          "--standalone --env MINE=yes --nproc-per-node " + n +
          " WORKER environment TORCHELASTIC_ERROR_FILE" + names),
      outer);
  CHECK(job.wait() == 0);
  for (const auto& [name, wanted] : expected) {
    CAPTURE(name);
    CHECK(values(job, name) == wanted);
  }
  const Values ports = values(job, "MASTER_PORT");
  REQUIRE(ports.size() == 1);
  CHECK(std::stoi(ports.begin()->front()) > 1023);
  CHECK(values(job, "TORCHELASTIC_RUN_ID").size() == 1);
  CHECK(count_of(job.out(), "DDP_TTY is unset") == ranks);
  CHECK(count_of(job.out(), "ERROR_FILE=/x\n") == 0);
}

TEST_CASE("OMP_NUM_THREADS is shared out where it is unset", "[start]") {
  LaunchedJob several(
      words("--nproc-per-node=2 WORKER environment OMP_NUM_THREADS"));
  CHECK(several.wait() == 0);
  const std::string share = std::to_string(std::max(1, available_cpus() / 2));
  CHECK(count_of(several.out(), "OMP_NUM_THREADS=" + share + "\n") == 2);
  CHECK(count_of(several.err(), "OMP_NUM_THREADS") == 1);

  LaunchedJob set(
      words("--nproc-per-node=2 WORKER environment OMP_NUM_THREADS"),
      {{{"OMP_NUM_THREADS", "5"}}});
  CHECK(set.wait() == 0);
  CHECK(count_of(set.out(), "OMP_NUM_THREADS=5\n") == 2);
  CHECK(set.err().empty());

  LaunchedJob one(words("WORKER environment OMP_NUM_THREADS"));
  CHECK(one.wait() == 0);
  const std::string all = "=" + std::to_string(available_cpus()) + "\n";
  CHECK(
      one.out() ==
      "OMP_NUM_THREADS" + (quota_limits_cpus() ? all : " is unset\n"));
}

TEST_CASE("ranks inherit their heartbeat and nothing else", "[start]") {
  JobSetup setup{{{"DDP_HEARTBEAT_FD", "5"}}};
  setup.before_exec = [] { // a careless parent leaves it open
    static_cast<void>(open("/dev/zero", O_RDONLY));
  };
  LaunchedJob job(
      words("--nproc-per-node 4 WORKER environment DDP_HEARTBEAT_FD then "
            "descriptors"),
      setup);
  CHECK(job.wait() == 0);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string prefix = "[" + std::to_string(rank) + "] ";
    const auto fds = matches(
        job.out(), "\\[" + std::to_string(rank) + "\\] DDP_HEARTBEAT_FD=(.*)");
    REQUIRE(fds.size() == 1);
    CHECK(
        count_of(job.out(), prefix + "descriptors: " + fds[0][0] + "\n") == 1);
  }
}

TEST_CASE("the store listens, and on the loopback interface alone", "[start]") {
  LaunchedJob job(
      words("--nproc-per-node 2 WORKER environment MASTER_PORT then wait"));
  job.wait_for_output("ready", 2);
  const int port = std::stoi(values(job, "MASTER_PORT").begin()->front());
  CHECK_THROWS(listen_on("127.0.0.1", port));
  CHECK_NOTHROW(listen_on("127.0.0.2", port)); // not on all addresses
  CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
  CHECK(listen_on("127.0.0.1", port).port == port);
}

TEST_CASE("ranks start with a clean state", "[start]") {
  JobSetup setup;
  setup.stdin_text = "not for the ranks";
  setup.before_exec = [] {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
  };
  LaunchedJob job(
      words("--nproc-per-node 2 bash -c 'grep ^Sig[BI] /proc/self/status; "
            "readlink /proc/self/fd/0; read pid _ _ _ group session _ "
            "</proc/$$/stat; echo $((group - pid)) $((session - pid))'"),
      setup);
  CHECK(job.wait() == 0);
  for (const char* line :
       {"SigBlk:\t0000000000000000",
        "SigIgn:\t0000000000000000",
        "/dev/null",
        "0 0"}) { // a separate group and session
    CAPTURE(line, job.out());
    CHECK(count_of(job.out(), std::string(line) + "\n") == 2);
  }
}

TEST_CASE("closed standard descriptors do no harm", "[start]") {
  JobSetup setup;
  setup.before_exec = [] {
    close(0);
    close(2);
  };
  LaunchedJob job(words("--nproc-per-node 2 WORKER descriptors"), setup);
  CHECK(job.wait() == 0);
  CHECK(count_of(job.out(), "descriptors:") == 2);
}

TEST_CASE("the program's arguments are its own", "[start]") {
  const Texts arguments = {
      "--help", "--nproc-per-node", "7", "--", "", "a b", "-x"};
  for (const Texts& separator : {Texts{}, Texts{"--"}}) {
    Texts command = {"--no-python", "--nproc_per_node=1"};
    command.insert(command.end(), separator.begin(), separator.end());
    command.insert(command.end(), {"printf", "<%s>"});
    command.insert(command.end(), arguments.begin(), arguments.end());
    LaunchedJob job(command);
    CHECK(job.wait() == 0);
    CHECK(job.out() == "<--help><--nproc-per-node><7><--><><a b><-x>\n");
  }
}

TEST_CASE("a program that cannot run is named", "[start]") {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  write_text(folder / "plain", "text\n");
  write_text(folder / "orphan", "#!/no/such/interpreter\n");
  write_text(folder / "script", "echo no\n"); // no #! line
  write_text(
      folder / "garbage",
      {"\x7f"
       "ELF\0\1\2",
       7});
  for (const char* name : {"orphan", "script", "garbage"}) {
    fs::permissions(folder / name, fs::perms::owner_all);
  }
  const auto run = [&](const std::string& program, int code) {
    LaunchedJob job(
        words("--nproc-per-node 4 '" + program + "' x"),
        {{{"PATH", folder.path()}, {"OMP_NUM_THREADS", "1"}}});
    CAPTURE(program, job.err());
    CHECK(job.wait() == code);
    CHECK(split_lines(job.err()).size() == 1);
    CHECK_THAT(job.err(), Has(program));
    CHECK(job.out().empty());
  };
  run("nowhere", 127);
  run("./no/where", 127);
  run(folder / "orphan", 127);
  run("plain", 126);
  run(folder / "plain", 126);
  run(folder.path(), 126);
  run("garbage", 126);
  run("script", 126);
}

TEST_CASE("wrong usage exits with 2", "[start]") {
  LaunchedJob job(words("--nproc-per-node none WORKER"));
  CHECK(job.wait() == 2);
  CHECK(split_lines(job.err()).size() == 1);
  LaunchedJob help({"--help"});
  CHECK(help.wait() == 0);
  CHECK_THAT(help.out(), Has("--grace"));
}

} // namespace ddp::test::start_test
