// The end of a job of which a part dies or makes no progress.
#include <tests/support/catch_plain.h>

#include <fcntl.h>
#include <signal.h>

#include <common/poll_until.h>
#include <common/text.h>
#include <launcher/sockets.h>
#include <tests/launcher/launched_job.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::failure_test {

TEST_CASE("the first rank that fails ends all", "[failure]") {
  const auto before = Clock::now();
  LaunchedJob job =
      shell("--nproc-per-node 4", "[ $RANK != 2 ] || exit 3; exec sleep 60");
  CHECK(job.wait() == 3);
  CHECK(Clock::now() - before < std::chrono::seconds(10));
  const auto lines = split_lines(job.err());
  REQUIRE(lines.size() == 2); // readable at a glance
  CHECK_THAT(lines[0], Has("ddprun: rank 2 (pid "));
  CHECK_THAT(lines[0], Has(") exited with code 3 after "));
  CHECK(lines[1] == "  others: ranks 0-1,3 were stopped");
}

TEST_CASE("a signal that kills a rank is named", "[failure]") {
  const int signal = GENERATE(SIGKILL, SIGSEGV, SIGTERM);
  const std::string number = std::to_string(signal);
  LaunchedJob job = shell(
      "--nproc-per-node 2",
      "[ $RANK != 1 ] || kill -" + number + " $$; exec sleep 60");
  CHECK(job.wait() == 128 + signal);
  CHECK_THAT(job.err(), Has("was killed by signal " + number + " ("));
}

TEST_CASE("a lone rank's code is ddprun's", "[failure]") {
  LaunchedJob job = shell("", "exit 255");
  CHECK(job.wait() == 255);
  CHECK(split_lines(job.err()).size() == 1);
}

TEST_CASE("of two failures the earlier is reported", "[failure]") {
  LaunchedJob job(words("--nproc-per-node 4 WORKER tell-signals"));
  const pid_t later = job.worker(1);
  const pid_t earlier = job.worker(3);
  job.wait_for_output("ready", 4);
  job.send(SIGUSR1);
  job.wait_for_output("got ", 4); // the agent has started all ranks
  const pid_t agent = job.agent();
  REQUIRE(kill(agent, SIGSTOP) == 0); // finds both dead together
  kill(earlier, SIGKILL);
  wait_for_death(earlier);
  kill(later, SIGSEGV);
  wait_for_death(later);
  REQUIRE(kill(agent, SIGCONT) == 0);
  CHECK(job.wait() == 128 + SIGKILL);
  CHECK_THAT(job.err(), Has("ddprun: rank 3 "));
  CHECK(count_of(job.err(), "ddprun: rank 1") == 0);
}

TEST_CASE("a rank that fails before all have started is blamed", "[failure]") {
  const TemporaryFolder folder;
  write_program(
      folder / "rank",
      "cd '" + folder.path() +
          "'\n"
          "case $RANK in\n"
          "  0) until [ -e next ] && read -r pid <pid &&\n"
          "       read -r _ _ state _ </proc/$pid/stat && [ $state = Z ]\n"
          "     do :; done 2>/dev/null; exit 1;; # a consequence\n"
          "  8) echo $$ > pid; exit 8;;\n"
          "  9) : > next;;\n"
          "esac\n"
          "exec sleep 60");
  LaunchedJob job(words("--nproc-per-node 64 '" + folder / "rank'"));
  CHECK(job.wait() == 8);
  CHECK_THAT(job.err(), Has("ddprun: rank 8 (pid "));
}

// A shell that starts a server and then becomes ddprun: `serve & exec ddprun`.
TEST_CASE("children that ddprun inherited are left alone", "[failure]") {
  const Pipe news = make_pipe();
  JobSetup setup;
  setup.before_exec = [&] {
    const pid_t server = fork();
    if (server == 0) {
      setenv("DDP_TEST_MARK", "none of the job's", 1);
      dup2(open("/dev/null", O_RDWR), STDOUT_FILENO);
      dup2(STDOUT_FILENO, STDERR_FILENO);
      execlp("sleep", "sleep", "60", nullptr);
    }
    static_cast<void>(!write(news.write_end.get(), &server, sizeof server));
  };
  LaunchedJob job(words("WORKER family 0"), setup);
  CHECK(job.wait() == 0);
  pid_t server = -1;
  REQUIRE(read(news.read_end.get(), &server, sizeof server) == sizeof server);
  CHECK_FALSE( // a zombie has none
      read_text("/proc/" + std::to_string(server) + "/cmdline").empty());
  kill(server, SIGKILL);
}

// Process 1 of a container gets the orphans of all its programs.
TEST_CASE("inherited children that end are reaped", "[failure]") {
  const Pipe news = make_pipe();
  JobSetup setup;
  setup.before_exec = [&] {
    const pid_t child = fork();
    if (child == 0) {
      pause();
    }
    static_cast<void>(!write(news.write_end.get(), &child, sizeof child));
  };
  LaunchedJob job(words("--nproc-per-node 3 WORKER wait"), setup);
  job.wait_for_output("ready", 3);
  pid_t child = -1;
  REQUIRE(read(news.read_end.get(), &child, sizeof child) == sizeof child);
  REQUIRE(kill(child, SIGKILL) == 0);
  CHECK(detail::poll_for(
      std::chrono::seconds(20), std::chrono::milliseconds(1), [&] {
        return kill(child, 0) != 0; // no zombie either
      }));
  CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
}

TEST_CASE("a rank that left is blamed, not who waited for it", "[failure]") {
  const TemporaryFolder folder;
  LaunchedJob job(words(
      "--nproc-per-node 3 --report '" + folder / "report.json" +
      "' WORKER call 0 'save_checkpoint(\"net.pt\"): barrier' 2000 'timed out' "
      "4 1 'after load' 0 '' 0 2 save_checkpoint(\"net.pt\") 0 '' -"));
  CHECK(job.wait() == 4);
  CHECK_THAT(
      job.err(),
      Has("ddprun: rank 1 had ended with code 0 while ranks 0,2 waited in "
          "save_checkpoint(\"net.pt\")\n  first victim: rank 0 (pid "));
  CHECK_THAT(read_text(folder / "report.json"), Has("\"root\": 1,"));
}

TEST_CASE("a rank outside the group that failed is not blamed", "[failure]") {
  const bool is_known = GENERATE(true, false); // older libraries write 1
  const std::string size = is_known ? "2" : "1";
  LaunchedJob job(words(
      "--nproc-per-node 3 WORKER failed-in " + size +
      " then call 0 barrier 500 'timed out' 4 1 save 0 '' - 2 barrier 0 "
      "'' -"));
  CHECK(job.wait() == 4);
  CHECK_THAT(
      job.err(),
      Has(is_known ? "ddprun: rank 0 (pid "
                   : "ddprun: rank 1 was in save while ranks 0,2 waited in "));
}

TEST_CASE("a long stop is explained while it lasts", "[failure]") {
  LaunchedJob job(
      words("--nproc-per-node 2 --grace 20 WORKER ignore-term 1 4"));
  job.wait_for_output("ready", 2);
  REQUIRE(kill(job.worker(1), SIGUSR1) == 0);
  job.wait_for_output("waiting for rank 0 to stop, for 1");
  job.wait_for_output(" s at most: rank 1 exited with code 4");
  CHECK(job.wait_after(SIGINT) == 4);
}

TEST_CASE("every end has its report", "[failure]") {
  const TemporaryFolder folder;
  const std::string file = folder / "report.json";
  const auto outcome = [&](const std::vector<std::string>& arguments,
                           int code) {
    write_text(file, "an older job's");
    std::vector<std::string> all = {"--report", file};
    all.insert(all.end(), arguments.begin(), arguments.end());
    LaunchedJob job(all);
    CHECK(job.wait() == code);
    const std::string text = read_text(file);
    CHECK_THAT(text, Has("\"exit_code\": " + std::to_string(code) + ","));
    return text;
  };
  CHECK_THAT(outcome({"true"}, 0), Has("\"succeeded\""));
  CHECK_THAT(outcome({"false"}, 1), Has("\"failed\""));
  CHECK_THAT(outcome({"sh", "-c", "exit 128"}, 128), Has("\"failed\""));
  CHECK_THAT(outcome({"/no/where"}, 127), Has("/no/where"));
  CHECK_THAT(outcome({"/etc/passwd"}, 126), Has("/etc/passwd"));
  const Listener taken = listen_on("127.0.0.1", 0);
  const std::string port = std::to_string(taken.port);
  CHECK_THAT(
      outcome({"--master-port", port, "true"}, 125),
      Has("cannot listen on 127.0.0.1:" + port));
  CHECK_THAT( // another machine's address
      outcome({"--master-addr", "192.0.2.1", "true"}, 125),
      Has("on one node, omit --master-addr"));

  LaunchedJob job(
      words("--nproc-per-node 4 --report '" + file + "' WORKER family"));
  job.wait_for_output("ready", 4);
  kill(job.agent(), SIGKILL);
  CHECK(job.wait() == 128 + SIGKILL); // and leaves nothing behind
  CHECK_THAT(job.err(), Has("the agent (pid "));
  CHECK_THAT(read_text(file), Has("\"infrastructure\""));
}

TEST_CASE("the store's end is the job's", "[failure]") {
  LaunchedJob job(words("--nproc-per-node 2 WORKER wait"));
  job.wait_for_output("ready", 2);
  REQUIRE(kill(job.store(), SIGKILL) == 0);
  CHECK(job.wait() == 75);
  CHECK_THAT(job.err(), Has("the ranks' store (pid"));
}

TEST_CASE("a helper that lacks a library is told with a remedy", "[failure]") {
  const TemporaryFolder folder;
  const std::string ddprun = folder / "ddprun";
  std::filesystem::copy_file(DDPRUN_PATH, ddprun);
  for (const char* helper : {"ddprun-store", "ddprun-etcd"}) {
    write_program(folder / helper, "exit 127");
  }
  const std::string report = folder / "report";
  const auto check_helper = [&](std::vector<std::string> options) {
    CAPTURE(options);
    options.insert(options.begin(), {ddprun, "--report", report});
    options.insert(options.end(), {"sleep", "60"});
    const auto outcome = Process(Command{options, {}}).finish(kLong);
    CHECK(outcome.exit_code == 75);
    CHECK_THAT(
        outcome.output,
        Has(") exited with code 127 (a shared library was not found: set "
            "LD_LIBRARY_PATH)"));
    CHECK_THAT(read_text(report), Has("\"exit_code\": 75"));
  };
  check_helper({});
  check_helper(words("--nnodes 2 --rdzv-endpoint 127.0.0.1:29400"));
  check_helper(
      words("--nnodes 2 --rdzv-backend etcd --rdzv-endpoint 127.0.0.1:29400"));
}

TEST_CASE("a ddprun that was built without libcurl says so", "[failure]") {
  const TemporaryFolder folder;
  const std::string ddprun = folder / "ddprun";
  std::filesystem::copy_file(DDPRUN_PATH, ddprun);
  write_program(folder / "ddprun-store", "exit 1");
  auto line = words(
      "--nnodes 2 --rdzv-backend etcd --rdzv-endpoint 127.0.0.1:29400 true");
  line.insert(line.begin(), ddprun);
  const auto outcome = run(Command{line, {}}, kLong);
  CHECK(outcome.exit_code == 125);
  CHECK_THAT(
      outcome.output,
      Has("ddprun-etcd is neither in ", " libcurl4-openssl-dev)"));
}

TEST_CASE("a helper that is always killed is given up", "[failure]") {
  const TemporaryFolder folder;
  const std::string ddprun = folder / "ddprun";
  std::filesystem::copy_file(DDPRUN_PATH, ddprun);
  const std::string starts = folder / "starts";
  write_program(
      folder / "ddprun-store", "echo >>'" + starts + "'; kill -KILL $$");
  auto line =
      words("--nnodes 2 --join-timeout 2 --rdzv-endpoint 127.0.0.1:29400 true");
  line.insert(line.begin(), ddprun);
  const auto outcome = run(Command{line, {}}, kLong);
  CHECK(outcome.exit_code == 124);
  CHECK_THAT(outcome.output, Has("was killed by signal 9"));
  CHECK(split_lines(read_text(starts)).size() < 20);
}

TEST_CASE("a hang is ended, and every rank's place told", "[hang]") {
  LaunchedJob job(words("--nproc-per-node 3 --hang-timeout 2 WORKER beat 1 5"));
  CHECK(job.wait() == 124);
  CHECK_THAT(
      job.err(),
      Has("ddprun: no progress for 2.0 s (--hang-timeout); all ranks were "
          "ended\n  rank 0 (pid "));
  CHECK_THAT(
      job.err(),
      Has("): after step 5, in all_reduce\n") &&
          Has("): after step 5, in read_batch\n"));
  CHECK(count_of(job.err(), "#0 net::forward()+0x1 (train+0x2)") == 3);
}

TEST_CASE("ranks that go on do not hang", "[hang]") {
  // Twice as long as the timeout.
  LaunchedJob job(
      words("--nproc-per-node 2 --hang-timeout 2 WORKER beat 0 200"));
  job.wait_for_output("ready", 2);
  CHECK(job.wait_after(SIGTERM) == 128 + SIGTERM);
}

TEST_CASE("programs that do not use ddp are not watched", "[hang]") {
  LaunchedJob job(words("--nproc-per-node 2 --hang-timeout 1 sleep 3"));
  CHECK(job.wait() == 0);
}

TEST_CASE("who waits long for a rank that has left is told once", "[hang]") {
  // Rank 3 is in no call.
  LaunchedJob job(
      words("--nproc-per-node 4 WORKER call 0 'save_checkpoint(\"net.pt\"): "
            "barrier' 13000 '' 0 1 'after load' 0 '' 0 2 all_reduce 13000 '' 0 "
            "3 'after load' 13000 '' 0"));
  CHECK(job.wait() == 0);
  CHECK(
      count_of(
          job.err(),
          "ddprun: rank 2 has been in all_reduce, rank 0 in "
          "save_checkpoint(\"net.pt\") for more than 10.0 s; rank 1 has ended "
          "with code 0\n") == 1);
  CHECK(count_of(job.err(), "has ended with code 0") == 1);
}

} // namespace ddp::test::failure_test
