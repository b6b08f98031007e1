// What a rank starts with.
#include <tests/support/catch_plain.h>

#include <fcntl.h>
#include <signal.h>

#include <common/processors.h>
#include <launcher/sockets.h>
#include <tests/launcher/launched_job.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::start_test {

// The values that all ranks printed for a variable.
std::set<std::string> values(const LaunchedJob& job, const std::string& name) {
  std::set<std::string> found;
  for (const std::string& line : lines_of(job.out())) {
    const size_t at = line.find(name);
    const bool whole = at != std::string::npos &&
        (at == 0 || line[at - 1] == ' ') && line.size() > at + name.size();
    if (whole) {
      found.insert(line.substr(at + name.size() + 1));
    }
  }
  return found;
}

TEST_CASE("each rank gets torchrun's environment", "[start]") {
  const int ranks = GENERATE(1, 2, 4, 16);
  CAPTURE(ranks);
  const std::string n = std::to_string(ranks);
  LaunchedJob job(
      words(
          "--nproc-per-node " + n +
          " WORKER environment RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE "
          "GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE "
          "MASTER_ADDR MASTER_PORT TORCHELASTIC_RESTART_COUNT "
          "TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID "
          "TORCHELASTIC_USE_AGENT_STORE DDP_TTY"),
      {{"RANK=77", "WORLD_SIZE=78", "MASTER_PORT=1", "DDP_TTY=1"}});
  CHECK(job.wait() == 0);
  std::set<std::string> all_ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    all_ranks.insert(std::to_string(rank));
  }
  using Values = std::set<std::string>;
  CHECK(values(job, "RANK") == all_ranks);
  CHECK(values(job, "LOCAL_RANK") == all_ranks);
  CHECK(values(job, "ROLE_RANK") == all_ranks);
  for (const char* name :
       {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"}) {
    CHECK(values(job, name) == Values{n});
  }
  CHECK(values(job, "GROUP_RANK") == Values{"0"});
  CHECK(values(job, "GROUP_WORLD_SIZE") == Values{"1"});
  CHECK(values(job, "ROLE_NAME") == Values{"default"});
  CHECK(values(job, "MASTER_ADDR") == Values{"127.0.0.1"});
  CHECK(values(job, "TORCHELASTIC_RESTART_COUNT") == Values{"0"});
  CHECK(values(job, "TORCHELASTIC_MAX_RESTARTS") == Values{"0"});
  CHECK(values(job, "TORCHELASTIC_USE_AGENT_STORE") == Values{"True"});
  const Values ports = values(job, "MASTER_PORT");
  REQUIRE(ports.size() == 1);
  CHECK(std::stoi(*ports.begin()) > 1023);
  CHECK(values(job, "TORCHELASTIC_RUN_ID").size() == 1);
  CHECK(count_of(job.out(), "DDP_TTY is unset") == ranks);
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
      {{"OMP_NUM_THREADS=5"}});
  CHECK(set.wait() == 0);
  CHECK(count_of(set.out(), "OMP_NUM_THREADS=5\n") == 2);
  CHECK(set.err().empty());

  LaunchedJob one(words("WORKER environment OMP_NUM_THREADS"));
  CHECK(one.wait() == 0);
  CHECK(one.out() == "OMP_NUM_THREADS is unset\n");
}

TEST_CASE("ranks inherit their heartbeat and nothing else", "[start]") {
  JobSetup setup;
  setup.before_exec = [] { // what a careless parent leaves open
    static_cast<void>(open("/dev/zero", O_RDONLY));
  };
  LaunchedJob job(
      words("--nproc-per-node 4 WORKER environment DDP_HEARTBEAT_FD then "
            "descriptors"),
      setup);
  CHECK(job.wait() == 0);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string prefix = "[" + std::to_string(rank) + "] ";
    const std::string key = prefix + "DDP_HEARTBEAT_FD=";
    const size_t at = job.out().find(key);
    REQUIRE(at != std::string::npos);
    const int fd = std::stoi(job.out().substr(at + key.size()));
    CHECK(
        count_of(
            job.out(), prefix + "descriptors: " + std::to_string(fd) + "\n") ==
        1);
  }
}

TEST_CASE("the store listens, and on the loopback interface alone", "[start]") {
  LaunchedJob job(
      words("--nproc-per-node 2 WORKER environment MASTER_PORT then wait"));
  job.wait_for_output("ready", 2);
  const std::string key = "MASTER_PORT=";
  const int port =
      std::stoi(job.out().substr(job.out().find(key) + key.size()));
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
  LaunchedJob job(words("--nproc-per-node 2 WORKER state"), setup);
  CHECK(job.wait() == 0);
  for (const std::string& line :
       words("'SigBlk: 0000000000000000' 'SigIgn: 0000000000000000' 'stdin "
             "/dev/null' 'own session' 'own group'")) {
    CAPTURE(line, job.out());
    CHECK(count_of(job.out(), line + "\n") == 2);
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
    command.insert(command.end(), {WORKER_PATH, "arguments"});
    command.insert(command.end(), arguments.begin(), arguments.end());
    LaunchedJob job(command);
    CHECK(job.wait() == 0);
    std::string expected;
    for (const std::string& argument : arguments) {
      expected += "<" + argument + ">\n";
    }
    CHECK(job.out() == expected);
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
        {{"PATH=" + folder.path(), "OMP_NUM_THREADS=1"}});
    CAPTURE(program, job.err());
    CHECK(job.wait() == code);
    CHECK(lines_of(job.err()).size() == 1);
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
  CHECK(lines_of(job.err()).size() == 1);
  LaunchedJob help({"--help"});
  CHECK(help.wait() == 0);
  CHECK_THAT(help.out(), Has("--grace"));
}

TEST_CASE("many ranks start and end", "[start]") {
  LaunchedJob job(words("--nproc-per-node 64 WORKER environment RANK"));
  CHECK(job.wait() == 0);
  CHECK(lines_of(job.out()).size() == 64);
}

} // namespace ddp::test::start_test
