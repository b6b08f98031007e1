// Nodes that meet in an etcd.
#include <tests/support/catch_plain.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <tests/launcher/launched_job.h>
#include <tests/support/free_port.h>
#include <tests/support/skip.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::etcd_test {

using Texts = std::vector<std::string>;

/// One that ends with this one; what it says goes into `log`.
pid_t start_process(Texts words, const std::string& log) {
  std::vector<char*> arguments;
  for (std::string& each : words) {
    arguments.push_back(each.data());
  }
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int file = open(log.c_str(), O_WRONLY | O_CREAT, 0600);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  return pid;
}

void end_process(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

/// An etcd of some members, on this host.
class Etcd {
 public:
  explicit Etcd(int size = 1, Texts options = {})
      : options_(std::move(options)) {
    if (std::system("command -v etcd >etcd.path") != 0 || !has_helper()) {
      skip("there is no etcd, or ddprun-etcd is not built (libcurl)");
    }
    for (int i = 0; i < size; ++i) {
      clients_.push_back(free_port());
      peers_.push_back(free_port());
    }
    for (int i = 0; i < size; ++i) {
      start(i);
    }
  }
  ~Etcd() {
    for (size_t i = 0; i < members_.size(); ++i) {
      end(i);
    }
  }
  Etcd(const Etcd&) = delete;
  Etcd& operator=(const Etcd&) = delete;

  /// For --rdzv-endpoint.
  std::string endpoints() const {
    std::string all;
    for (const int port : clients_) {
      all +=
          (all.empty() ? "127.0.0.1:" : ",127.0.0.1:") + std::to_string(port);
    }
    return all;
  }

  /// As if it had lost its power.
  void end(size_t member) {
    if (members_[member] > 0) {
      end_process(std::exchange(members_[member], 0));
    }
  }

  std::string folder(size_t member) const {
    return folder_ / ("m" + std::to_string(member));
  }

  /// Runs Python code, which has `call(path, request)` and `key(text)`; what it
  /// writes.
  std::string run(const std::string& code) const {
    const std::string script = folder_ / "script.py", output = folder_ / "out";
    std::ofstream(script) << R"(
import base64, json, time, urllib.request
def key(text):
    return base64.b64encode(text.encode()).decode()
def call(path, request):
    for attempt in range(100):
        try:
            body = json.dumps(request).encode()
            url = "http://127.0.0.1:)"
                          << clients_[0] << R"(/v3/" + path
            return json.load(urllib.request.urlopen(url, body, 5))
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the etcd does not answer")
)" << code;
    const auto command = "python3 " + script + " >" + output;
    REQUIRE(std::system(command.c_str()) == 0);
    std::ostringstream text;
    text << std::ifstream(output).rdbuf();
    return text.str();
  }

 private:
  static bool has_helper() {
    namespace fs = std::filesystem;
    return fs::exists(fs::path(DDPRUN_PATH).parent_path() / "ddprun-etcd");
  }

  void start(int member) {
    const auto url = [](int port, const char* scheme) {
      return scheme + std::string("://127.0.0.1:") + std::to_string(port);
    };
    const bool is_encrypted = !options_.empty();
    const auto own_client =
        url(clients_[member], is_encrypted ? "https" : "http");
    const auto own_peer = url(peers_[member], "http");
    std::string cluster;
    for (size_t i = 0; i < peers_.size(); ++i) {
      cluster += (i == 0 ? "m" : ",m") + std::to_string(i) + "=" +
          url(peers_[i], "http");
    }
    Texts words{
        "etcd",
        "--name",
        "m" + std::to_string(member),
        "--data-dir",
        folder(member),
        "--listen-client-urls",
        own_client,
        "--advertise-client-urls",
        own_client,
        "--listen-peer-urls",
        own_peer,
        "--initial-advertise-peer-urls",
        own_peer,
        "--initial-cluster",
        cluster};
    words.insert(words.end(), options_.begin(), options_.end());
    members_.push_back(start_process(words, folder(member) + ".log"));
  }

  const Texts options_;
  const TemporaryFolder folder_;
  std::vector<int> clients_;
  std::vector<int> peers_;
  std::vector<pid_t> members_;
};

using Jobs = std::vector<std::unique_ptr<LaunchedJob>>;

/// Agents of one job, each for a node of one rank.
Jobs start(
    int nodes,
    const Etcd& etcd,
    const std::string& options,
    const std::string& script) {
  Jobs jobs;
  for (int i = 0; i < nodes; ++i) {
    auto line = words(
        "--rdzv-backend=etcd --rdzv-endpoint=" + etcd.endpoints() + " " +
        options + " bash -c");
    line.push_back(script);
    jobs.push_back(std::make_unique<LaunchedJob>(line));
  }
  return jobs;
}

/// One agent that does not get far: its exit code.
int fails_with(
    const Etcd& etcd,
    const std::string& options,
    const std::string& message) {
  const auto jobs = start(1, etcd, "--nnodes=2 " + options, "true");
  const int code = jobs[0]->wait();
  CAPTURE(jobs[0]->err());
  CHECK(jobs[0]->err().find(message) != std::string::npos);
  CHECK(jobs[0]->out().empty());
  return code;
}

TEST_CASE("nodes meet in an etcd, and leave nothing there") {
  Etcd etcd;
  const std::string keys =
      "print(call('kv/range', {'key': key('ddp/'), 'range_end': key('ddp0'),"
      " 'count_only': True}).get('count', 0))";
  for (int i = 0; i < 2; ++i) { // of one name
    auto jobs = start(
        3, etcd, "--nnodes=3 --rdzv-id=job", "echo rank $RANK of $WORLD_SIZE");
    std::string output;
    for (auto& each : jobs) {
      CHECK(each->wait() == 0);
      output += each->out();
    }
    for (const char* rank : {"0", "1", "2"}) {
      CHECK(count_of(output, std::string("rank ") + rank + " of 3") == 1);
    }
    CHECK(etcd.run(keys) == "0\n");
  }
}

TEST_CASE("who is let into an etcd has its password") {
  Etcd etcd;
  etcd.run(R"(
call("auth/user/add", {"name": "root", "password": "right"})
call("auth/role/add", {"name": "root"})
call("auth/user/grant", {"user": "root", "role": "root"})
call("auth/enable", {})
)");
  const TemporaryFolder folder;
  const std::string file = folder / "password";
  const auto options =
      "--rdzv-conf=user=root,password_file=" + file + " --nnodes=2";
  std::ofstream(file) << "wrong\n";
  CHECK(fails_with(etcd, options, "it does not let user root in") == 75);
  CHECK(fails_with(etcd, "", "password_file of --rdzv-conf") == 75);
  std::ofstream(file) << "right\n";
  for (auto& each : start(2, etcd, options, "true")) {
    CHECK(each->wait() == 0);
  }
}

TEST_CASE("an etcd that has TLS shows its certificate") {
  Etcd etcd(1, {"--auto-tls"});
  const auto certificate = etcd.folder(0) + "/fixtures/client/cert.pem";
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (!std::filesystem::exists(certificate)) {
    REQUIRE(Clock::now() < deadline);
    usleep(10000);
  }
  const auto options = "--rdzv-conf=cacert=" + certificate + " --nnodes=2";
  for (auto& each : start(2, etcd, options, "true")) {
    CHECK(each->wait() == 0);
  }
  CHECK(
      fails_with(
          etcd,
          "--rdzv-conf=cacert=/etc/ssl/certs/ca-certificates.crt",
          "its TLS certificate or ours does not fit") == 75);
}

TEST_CASE("an etcd without a quorum is waited for") {
  Etcd etcd(3);
  etcd.end(1);
  etcd.end(2);
  CHECK(fails_with(etcd, "--join-timeout=8", "quorum") == 124);
}

TEST_CASE("what is no etcd is told at once") {
  const int port = free_port();
  const TemporaryFolder folder;
  const pid_t server = start_process(
      {"python3", "-m", "http.server", std::to_string(port)}, folder / "log");
  LaunchedJob job(words(
      "--nnodes=2 --rdzv-backend=etcd --rdzv-endpoint=127.0.0.1:" +
      std::to_string(port) + " true"));
  CHECK(job.wait() == 75);
  CAPTURE(job.err());
  CHECK(job.err().find("it answers, but is not an etcd") != std::string::npos);
  end_process(server);
}

} // namespace ddp::test::etcd_test
