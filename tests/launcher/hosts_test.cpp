// The meaning of --hosts and --hostfile, the command for each host, and jobs
// whose hosts are all this machine.
#include <tests/support/catch_plain.h>

#include <common/scheduler/launch_error.h>
#include <launcher/remote/host_commands.h>
#include <tests/launcher/launched_job.h>
#include <tests/launcher/option_parsing.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::hosts_test {

using Hosts = std::vector<std::pair<std::string, int>>;

Hosts hosts_by(const std::string& option) {
  Hosts hosts;
  for (const RemoteHost& each : parse({option, "x"}).remote.hosts) {
    hosts.emplace_back(each.name, each.ranks);
  }
  return hosts;
}

bool has(const Texts& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST_CASE("hosts are names with numbers of ranks", "[unit]") {
  CHECK(hosts_by("--hosts=n0") == Hosts{{"n0", 0}});
  CHECK(hosts_by("--hosts=n0:8,n1.a-b:2") == Hosts{{"n0", 8}, {"n1.a-b", 2}});
  CHECK(
      hosts_by("--hosts=[fd00::1]:3,[fd00::2],fd00::3,10.9.0.1:1") ==
      Hosts{{"fd00::1", 3}, {"fd00::2", 0}, {"fd00::3", 0}, {"10.9.0.1", 1}});
  for (const std::string& wrong :
       words("'' , n0,,n1 :8 n0: n0:0 n0:-1 n0:a -l n0;reboot me@n0 [::1 "
             "[fd00::1]8 0.0.0.0:2")) {
    check_refused("--hosts=" + wrong + " x", "--hosts is '");
  }
  check_refused(
      "--hosts=n0,n1:0 x", "--hosts is 'n1:0', expected 1 to 65536 ranks");
  check_refused("--hosts=localhost:2,n1 x", "localhost is a different machine");
}

TEST_CASE("a file names hosts", "[unit]") {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/hosts";
  const auto write = [&](const std::string& text) {
    std::ofstream(file) << text;
  };
  write("# the cluster\n\nn0 slots=8\n  n1:4 # slow\nn2\n");
  CHECK(
      hosts_by("--hostfile=" + file) == Hosts{{"n0", 8}, {"n1", 4}, {"n2", 0}});
  write("n0\nn0\nn1\nn2 slots=2\nn0\nn2\n"); // as PBS and LSF write them
  CHECK(
      hosts_by("--hostfile=" + file) == Hosts{{"n0", 3}, {"n1", 0}, {"n2", 3}});
  write("n0 slots=2\nn1\nn0 slots=3\nn1:2\n"); // as Open MPI adds them up
  CHECK(hosts_by("--hostfile=" + file) == Hosts{{"n0", 5}, {"n1", 3}});
  const auto error = [&] { return usage_error_of({"--hostfile", file, "x"}); };
  write("n0\nn1 slots=many\n");
  CHECK_THAT(error(), Has("line 2, is 'slots=many'"));
  write("n0 cores=2\n");
  CHECK_THAT(error(), Has("line 1, is 'cores=2'"));
  write("# none\n");
  CHECK_THAT(error(), Has("contains no host"));
  check_refused("--hostfile=/nowhere x", "/nowhere: No such file");
  write("n0\n");
  check_refused("--hosts=n1 --hostfile " + file + " x", "cannot be combined");
}

TEST_CASE("hosts say what other options would", "[unit]") {
  for (const std::string& option :
       words("--nnodes=2 --node-rank=0 --standalone --master-addr=n0 "
             "--local-addr=10.9.0.1 --rdzv-backend=static")) {
    check_refused("--hosts=n0,n1 " + option + " x", "cannot be combined");
  }
}

TEST_CASE("each host has its own command", "[unit]") {
  const auto commands = host_commands(
      parse({"--hosts=n8:2,n9", "--env=A=b c", "--report=r", "./train", "'"}));
  REQUIRE(commands.size() == 2);
  CHECK(commands[1].host == "n9");
  CHECK_FALSE(commands[1].is_here);
  const Texts& words = commands[1].words;
  REQUIRE(words.size() == 3);
  CHECK(words[0] == "ssh");
  CHECK(words[1] == "n9");
  CHECK(words[2].compare(0, 3, "cd ") == 0);
  CHECK_THAT(
      words[2],
      Has(" && exec env DDP_REMOTE_LAUNCHER=1 ") &&
          Has(" --token - --nnodes=2 --rdzv-endpoint=n8:") &&
          Has(" --rdzv-id=") &&
          Has(" --node-rank=1 '--env=A=b c' -- ./train ''\\'''"));
  CHECK_THAT(
      commands[0].words[2],
      Has(" --node-rank=0 --nproc-per-node=2 ") && Has(" --report=r "));
}

TEST_CASE("this machine needs no remote shell", "[unit]") {
  const auto commands = host_commands(parse(
      words("--hosts=localhost:2,127.0.0.1 --rdzv-endpoint=localhost:1 "
            "--rdzv-id=job ./train"),
      {{"DDP_TOKEN", "hush"}, {"PET_NPROC_PER_NODE", "3"}}));
  for (const HostCommand& each : commands) {
    CHECK(each.is_here);
    CHECK(has(each.words, "--rdzv-endpoint=localhost:1"));
    CHECK(has(each.words, "--rdzv-id=job"));
    CHECK_FALSE(has(each.words, "hush"));
    CHECK(each.words.back() == "./train");
  }
  CHECK(has(commands[0].words, "--nproc-per-node=2"));
  CHECK_FALSE(has(commands[0].words, "--nproc-per-node=3"));
  CHECK(has(commands[1].words, "--nproc-per-node=3"));
}

TEST_CASE("the endpoint's port is drawn from half of the range", "[unit]") {
  const auto drawn = [](const std::string& range) {
    const auto options = parse(
        words("--hosts=localhost:2,127.0.0.1 --port-range=" + range + " x"));
    return std::stoi(
        matches(describe_commands(options), "endpoint=localhost:(\\d+)")
            .at(0)
            .at(0));
  };
  std::set<int> ports;
  for (int i = 0; i < 30; ++i) {
    ports.insert(drawn("30000-30009"));
  }
  CHECK(ports.size() > 1); // two jobs have the same one rarely
  CHECK(*ports.begin() >= 30005);
  CHECK(*ports.rbegin() <= 30009);
  CHECK(drawn("30000-30001") == 30001); // the ranks' store gets the first
  CHECK(drawn("30000-30000") == 30000);
}

TEST_CASE("a host's job ends with its exit code", "[start]") {
  LaunchedJob job(words("--hosts=localhost:1 sh -c 'echo said; exit 3'"));
  CHECK(job.wait() == 3);
  CHECK_THAT(job.out(), Has("said"));
  CHECK(job.out().find('\1') == std::string::npos);
}

TEST_CASE("a rank cannot say that its ddprun has ended", "[start]") {
  // The rank's ddprun is then killed, as if the host went down.
  const TemporaryFolder folder;
  const std::string shown = folder / "shown";
  LaunchedJob job(
      {"--hosts=localhost:1",
       "bash",
       "-c",
       R"(printf '\001ddprun begins\n\001ddprun ends\n'
          until [ -e "$0" ]; do sleep 0.05; done
          read -r _ _ _ front _ < /proc/$PPID/stat
          kill -9 $front; sleep 60)",
       shown});
  job.wait_for_output("\1ddprun ends");
  write_text(shown, "");
  CHECK(job.wait() == kExitInfrastructure);
  CHECK_THAT(job.err(), Has("localhost was disconnected"));
  CHECK_THAT(job.out(), Has("\1ddprun ends"));
}

} // namespace ddp::test::hosts_test
