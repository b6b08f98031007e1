// The agents' shared log: the lives of its processes and its store.
#include <tests/launcher/shared_log_fixture.h>

#include <sys/mman.h>

namespace ddp::test::shared_log_processes_test {

// Captures the stderr of this process and its children.
class CapturedErrors {
 public:
  CapturedErrors()
      : stderr_(dup(STDERR_FILENO)), file_(memfd_create("stderr", 0)) {
    dup2(file_.get(), STDERR_FILENO);
  }
  ~CapturedErrors() {
    dup2(stderr_.get(), STDERR_FILENO);
  }
  std::string text() const {
    return read_text("/proc/self/fd/" + std::to_string(file_.get()));
  }

 private:
  FileDescriptor stderr_;
  FileDescriptor file_;
};

bool has_secret(pid_t pid) {
  std::string environment;
  wait_until({}, [&] { // it is empty while the program is being loaded
    environment = read_text("/proc/" + std::to_string(pid) + "/environ");
    return !environment.empty();
  });
  return environment.find("DDP_TOKEN") != std::string::npos;
}

TEST_CASE("what speaks to the network has no secret", "[rendezvous]") {
  setenv("DDP_TOKEN", "hush", 1);
  Trio trio;
  unsetenv("DDP_TOKEN");
  CHECK_FALSE(has_secret(trio.host.pid()));
  CHECK_FALSE(has_secret(trio.second.pid()));
  const JobSetup setup{{{"DDP_TOKEN", "hush"}}};
  LaunchedJob job(words("WORKER wait"), setup);
  job.worker(0);
  const pid_t store = job.store();
  CHECK_FALSE(has_secret(store));
}

TEST_CASE("the end of the store is told at once", "[rendezvous]") {
  const CapturedErrors errors;
  Trio trio;
  trio.second.log().post("before");
  wait_until(trio.all, [&] { return trio.third.entries.size() == 1; });
  kill(trio.host.pid(), SIGKILL);
  wait_until(trio.all, [&] {
    return !trio.second.lost.empty() && !trio.third.lost.empty();
  });
  wait_until(trio.all, [&] { return !trio.host.lost.empty(); });
  const std::string place = "127.0.0.1:" + std::to_string(trio.port);
  CHECK_THAT(trio.second.lost, Has(place));
  CHECK(trio.second.lost.find('\n') == std::string::npos);
  CHECK_THAT(trio.host.lost, Has(std::to_string(trio.host.pid())));
  trio.second.log().post("after"); // lost silently
  trio.second.take();
  wait_for_death(trio.second.pid());
  CHECK(errors.text().empty());
}

TEST_CASE("a helper that dies is told to its agent alone", "[rendezvous]") {
  Trio trio;
  kill(trio.third.pid(), SIGKILL);
  wait_until(trio.all, [&] { return !trio.third.lost.empty(); });
  trio.second.log().post("still here");
  wait_until(
      {&trio.host, &trio.second}, [&] { return !trio.host.entries.empty(); });
  CHECK(trio.host.lost.empty());
}

TEST_CASE("members wait for a store that is not there yet", "[rendezvous]") {
  const CapturedErrors errors;
  const int port = free_port();
  // The first address of localhost is often ::1.
  LogProcess early("b", "localhost", port);
  std::this_thread::sleep_for(1s); // the time that the endpoint is empty
  early.log().post("early");
  early.take();
  REQUIRE(early.nonce.empty());
  LogProcess host("a", "127.0.0.1", port, true);
  wait_until({&host}, [&] { return !host.nonce.empty(); });
  wait_until({&early}, [&] { return !early.nonce.empty(); });
  wait_until({&host, &early}, [&] { return host.entries == Texts{"early"}; });
  LogProcess late("c", "127.0.0.1", port);
  wait_until({&late}, [&] { return !late.nonce.empty(); });
  CHECK(early.own_address == "127.0.0.1");
  CHECK(errors.text().empty());
}

void check_served_at(const std::string& host) {
  INFO(host);
  const int port = free_port();
  const bool all = host == "::" || host == "0.0.0.0";
  const std::string address = all ? "127.0.0.1" : host;
  LogProcess first("a", address, port, true, all ? host : "");
  LogProcess second("b", address, port);
  wait_until_connected({&first, &second});
  CHECK(first.nonce == second.nonce);
  CHECK(first.own_address.find(address) != std::string::npos);
  CHECK(
      second.own_address.find(host == "127.0.0.2" ? "127." : address) !=
      std::string::npos);
}

TEST_CASE("the store serves where its socket is bound", "[rendezvous]") {
  check_served_at("0.0.0.0");
  check_served_at("127.0.0.2");
}

void require_ipv6() {
  try {
    listen_on("::1", 0);
  } catch (const std::exception&) {
    skip("this host has no IPv6");
  }
}

TEST_CASE("the store serves where its IPv6 socket is bound", "[rendezvous]") {
  require_ipv6();
  check_served_at("::");
  check_served_at("::1");
}

TEST_CASE("a lost store's IPv6 address is in brackets", "[rendezvous]") {
  require_ipv6();
  const int port = free_port();
  LogProcess host("a", "::1", port, true);
  LogProcess second("b", "::1", port);
  wait_until_connected({&host, &second});
  kill(host.pid(), SIGKILL);
  wait_until({&host, &second}, [&] { return !second.lost.empty(); });
  CHECK_THAT(second.lost, Has(" [::1]:" + std::to_string(port) + " is lost"));
}

TEST_CASE("helpers end with their agents", "[rendezvous]") {
  const int port = free_port();
  Pipe pipe = make_pipe();
  Process agent([&]() noexcept {
    LogProcess host("a", "127.0.0.1", port, true);
    LogProcess waiting("b", "127.0.0.1", 1); // no process listens there
    wait_until_connected({&host});
    const pid_t pids[2] = {host.pid(), waiting.pid()};
    return write(pipe.write_end.get(), pids, sizeof pids) > 0 ? pause() : 1;
  });
  pipe.write_end.reset();
  pid_t pids[2] = {};
  REQUIRE(read(pipe.read_end.get(), pids, sizeof pids) == sizeof pids);
  agent.signal(SIGKILL);
  agent.finish(kLong);
  for (pid_t each : pids) {
    wait_for_death(each);
  }

  auto log = std::make_unique<LogProcess>("a", "127.0.0.1", 1);
  const pid_t pid = log->pid();
  log.reset(); // also if it has not connected
  CHECK(kill(pid, 0) != 0);
}

TEST_CASE("signals to all processes of a job end no helper", "[rendezvous]") {
  Trio trio;
  trio.second.log().set_last_will("gone");
  trio.second.log().post("heard");
  wait_until(trio.all, [&] { return trio.second.entries.size() == 1; });
  for (const int signal :
       {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    kill(trio.second.pid(), signal);
  }
  const int before = trio.second.beat_events;
  wait_until(trio.all, [&] { // longer than a last will may take
    return trio.second.beat_events > before + 30 || !trio.second.lost.empty();
  });
  CHECK(trio.second.lost.empty());
}

Kind told_of(const std::string& helper) {
  SharedLog log(helper, {"a", "", {}});
  pollfd polled{log.fd(), POLLIN, 0};
  REQUIRE(poll(&polled, 1, 5000) == 1);
  const auto event = log.next();
  REQUIRE(event);
  CHECK_FALSE(log.next());
  waitpid(log.pid(), nullptr, 0);
  return event->kind;
}

TEST_CASE("a helper that cannot run is not started again", "[rendezvous]") {
  CHECK(told_of("/nonexistent") == Kind::kRejected);
  const TemporaryFolder folder;
  const std::string helper = folder / "helper";
  const auto told_of_script = [&](const std::string& line) {
    write_program(helper, line);
    return told_of(helper);
  };
  CHECK(told_of_script("kill -ILL $$") == Kind::kRejected);
  CHECK(told_of_script("kill -KILL $$") == Kind::kLost);
}

} // namespace ddp::test::shared_log_processes_test
