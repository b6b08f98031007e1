// Nodes whose rendezvous is in an etcd.
#include <tests/support/catch_plain.h>

#include <common/poll_until.h>
#include <tests/launcher/launched_job.h>
#include <tests/support/free_port.h>
#include <tests/support/skip.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test::etcd_test {

using namespace std::chrono_literals;

/// An etcd cluster on this host.
class Etcd {
 public:
  explicit Etcd(int size = 1, const std::string& options = "") {
    if (std::system("command -v etcd >/dev/null") != 0 || !has_helper()) {
      skip("there is no etcd, or ddprun-etcd is not built (libcurl)");
    }
    const auto address = [] {
      return "127.0.0.1:" + std::to_string(free_port());
    };
    for (int i = 0; i < size; ++i) {
      clients_.push_back(address());
      peers_.push_back("http://" + address());
    }
    for (int i = 0; i < size; ++i) {
      start(i, options);
    }
  }

  /// For --rdzv-endpoint.
  std::string endpoints() const {
    std::string all;
    for (const std::string& each : clients_) {
      all += (all.empty() ? "" : ",") + each;
    }
    return all;
  }

  /// Ends a member as a loss of power would.
  void end(int member) {
    members_.erase(member);
  }

  std::string folder(int member) const {
    return folder_ / ("m" + std::to_string(member));
  }

  /// Runs Python code, which has `call(path, request)` and `key(text)`; returns
  /// its output.
  std::string run(const std::string& code) const {
    const std::string script = folder_ / "script.py";
    write_text(script, R"(
import base64, json, sys, time, urllib.request
def key(text):
    return base64.b64encode(text.encode()).decode()
def call(path, request):
    for attempt in range(100):
        try:
            body = json.dumps(request).encode()
            url = f"http://{sys.argv[1]}/v3/{path}"
            return json.load(urllib.request.urlopen(url, body, 5))
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the etcd does not answer")
)" + code);
    const Command command{{"python3", script, clients_[0]}, {}};
    const auto outcome = ddp::test::run(command, kLong);
    INFO(outcome.output);
    REQUIRE(outcome.exit_code == 0);
    return outcome.output;
  }

 private:
  static bool has_helper() {
    namespace fs = std::filesystem;
    return fs::exists(fs::path(DDPRUN_PATH).parent_path() / "ddprun-etcd");
  }

  // The etcd ends with this process.
  void start(int member, const std::string& options) {
    const auto client =
        (options.empty() ? "http://" : "https://") + clients_[member];
    std::string cluster;
    for (size_t i = 0; i < peers_.size(); ++i) {
      cluster += (i == 0 ? "m" : ",m") + std::to_string(i) + "=" + peers_[i];
    }
    const auto command = "exec setpriv --pdeathsig KILL etcd --name m" +
        std::to_string(member) + " --data-dir " + folder(member) +
        " --listen-client-urls " + client + " --advertise-client-urls " +
        client + " --listen-peer-urls " + peers_[member] +
        " --initial-advertise-peer-urls " + peers_[member] +
        " --initial-cluster " + cluster + " " + options + " >" +
        folder(member) + ".log 2>&1";
    members_.emplace(member, Command{{"sh", "-c", command}, {}});
  }

  const TemporaryFolder folder_;
  Texts clients_;
  Texts peers_;
  std::map<int, Process> members_;
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

/// Starts one agent, which must fail; returns its exit code.
int fails_with(
    const Etcd& etcd,
    const std::string& options,
    const std::string& message) {
  const auto jobs = start(1, etcd, "--nnodes=2 " + options, "true");
  const int code = jobs[0]->wait();
  CHECK_THAT(jobs[0]->err(), Has(message));
  CHECK(jobs[0]->out().empty());
  return code;
}

TEST_CASE("nodes meet in an etcd, and leave nothing there") {
  Etcd etcd;
  const std::string keys =
      "print(call('kv/range', {'key': key('ddp/'), 'range_end': key('ddp0'),"
      " 'count_only': True}).get('count', 0))";
  for (int i = 0; i < 2; ++i) { // with the same name
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
  const auto setting = "password_file '" + file + "' of --rdzv-conf";
  CHECK(
      fails_with(etcd, options, "cannot read " + setting + ": No such file") ==
      75);
  std::ofstream(file).flush();
  CHECK(fails_with(etcd, options, setting + " is empty") == 75);
  std::ofstream(file) << "wrong\n";
  CHECK(fails_with(etcd, options, "it rejects user root") == 75);
  CHECK(fails_with(etcd, "", "password_file of --rdzv-conf") == 75);
  std::ofstream(file) << "right\n";
  for (auto& each : start(2, etcd, options, "true")) {
    CHECK(each->wait() == 0);
  }
}

TEST_CASE("an etcd that has TLS shows its certificate") {
  Etcd etcd(1, "--auto-tls");
  const auto certificate = etcd.folder(0) + "/fixtures/client/cert.pem";
  REQUIRE(detail::poll_for(
      20s, 10ms, [&] { return std::filesystem::exists(certificate); }));
  const auto options = "--rdzv-conf=cacert=" + certificate + " --nnodes=2";
  for (auto& each : start(2, etcd, options, "true")) {
    CHECK(each->wait() == 0);
  }
  CHECK(
      fails_with(
          etcd,
          "--rdzv-conf=cacert=/etc/ssl/certs/ca-certificates.crt",
          "the TLS certificate of the server or of this client was rejected") ==
      75);
}

TEST_CASE("keys of an ended job are kept for the next at once") {
  Etcd etcd;
  etcd.run(R"(
lease = call("lease/grant", {"TTL": "20"})["ID"]
nonce = base64.b64encode(f"{'0' * 32} {lease}".encode()).decode()
call("kv/put", {"key": key("ddp/job/nonce"), "value": nonce, "lease": lease})
time.sleep(8)
)");
  // The job's first renewal in turn would come after 15 s.
  const auto jobs =
      start(2, etcd, "--nnodes=2 --rdzv-id=job", "echo runs; sleep 14");
  for (auto& each : jobs) {
    each->wait_for_output("runs");
  }
  for (auto& each : jobs) {
    CHECK(each->wait() == 0);
  }
}

/// A Python that ends with this process.
Command python(Texts arguments) {
  arguments.insert(
      arguments.begin(), {"setpriv", "--pdeathsig", "KILL", "python3"});
  return {arguments, {}};
}

TEST_CASE("a member that sends nothing more is left") {
  Etcd etcd;
  const TemporaryFolder folder;
  const std::string script = folder / "proxy.py";
  write_text(script, R"(
import socket, sys, threading
def copy(source, sink):
    while data := source.recv(65536):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)
host, port = sys.argv[2].split(":")
listener = socket.create_server(("", int(sys.argv[1])))
print("listens", flush=True)
for client, _ in iter(listener.accept, 0):
    server = socket.create_connection((host, port))
    for pair in (client, server), (server, client):
        threading.Thread(target=copy, args=pair).start()
)");
  const auto port = std::to_string(free_port());
  Process proxy(python({script, port, etcd.endpoints()}));
  REQUIRE(proxy.wait_for("listens", kLong));
  const std::string end = folder / "end";
  const auto wait = "echo runs; until [ -e '" + end + "' ]; do sleep 0.1; done";
  const auto options =
      "--nnodes=2 --node-timeout=8 --rdzv-backend=etcd --rdzv-endpoint="
      "127.0.0.1:" +
      port + "," + etcd.endpoints();
  LaunchedJob first = shell(options, wait);
  LaunchedJob second = shell(options, wait);
  first.wait_for_output("runs");
  second.wait_for_output("runs");
  proxy.signal(SIGSTOP);
  write_text(end, "");
  CHECK(first.wait() == 0);
  CHECK(second.wait() == 0);
}

TEST_CASE("an etcd without a quorum is waited for") {
  Etcd etcd(3);
  etcd.end(1);
  etcd.end(2);
  CHECK(
      fails_with(etcd, "--join-timeout=8", "start the members that are down") ==
      75);
}

TEST_CASE("what is no etcd is told at once") {
  const auto port = std::to_string(free_port());
  const Process server(python({"-m", "http.server", port}));
  LaunchedJob job(words(
      "--nnodes=2 --rdzv-backend=etcd --rdzv-endpoint=127.0.0.1:" + port +
      " true"));
  CHECK(job.wait() == 75);
  CHECK_THAT(job.err(), Has("it answers, but is not etcd"));
}

// Starts a node with an etcd whose answers are set by Python code: `streams` of
// its watches, which then fail, and `nonces` that it has already. Returns
// whether the watches start at these revisions.
bool watches_from(const std::string& starts, const std::string& answers) {
  const TemporaryFolder folder;
  const std::string script = folder / "etcd.py";
  write_text(script, R"(
import base64, http.server, json, sys
starts = []
nonces = []
)" + answers + R"(
class Etcd(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): # it would come between what is printed
        pass
    def do_GET(self):
        self.answer(200, {"etcdserver": "3.5.0"})
    def do_POST(self):
        size = int(self.headers["Content-Length"])
        value = json.loads(self.rfile.read(size))
        if self.path == "/v3/watch" and streams:
            starts.append(value["create_request"]["start_revision"])
            self.answer(200, streams.pop(0))
            if not streams:
                print(" ".join(["starts", *starts, "end"]), flush=True)
        elif self.path == "/v3/watch":
            self.answer(400, {"message": "enough"})
        elif self.path == "/v3/lease/keepalive" and value["ID"] == "7":
            self.answer(200, {"result": {}})
        elif self.path == "/v3/kv/txn" and nonces:
            pair = {"value": base64.b64encode(nonces.pop().encode()).decode()}
            self.answer(200, {"responses": [{"response_range":
                                             {"kvs": [pair]}}]})
        else:
            self.answer(200, {"ID": "1", "header": {"revision": "1"},
                              "succeeded": True, "result": {"TTL": "9"}})
    def answer(self, status, value):
        self.send_response(status)
        self.end_headers()
        text = value if isinstance(value, str) else json.dumps(value)
        self.wfile.write(text.encode())
http.server.ThreadingHTTPServer(
    ("127.0.0.1", int(sys.argv[1])), Etcd).serve_forever()
)");
  const auto port = std::to_string(free_port());
  Process server(python({script, port}));
  const LaunchedJob job(words(
      "--nnodes=2 --rdzv-backend=etcd --rdzv-endpoint=127.0.0.1:" + port +
      " true"));
  return server.wait_for("starts " + starts + " end", kLong);
}

TEST_CASE("what an etcd streams that is no JSON is passed over") {
  CHECK(watches_from("2 2", R"(
streams = ["nonsense\n" + "[" * 500000 + "]" * 500000 + "\n", ""])"));
}

TEST_CASE("the events of an etcd's watch that ends early are read again") {
  CHECK(watches_from("2 2", R"(
created = {"result": {"header": {"revision": "4"}, "created": True}}
streams = [json.dumps(created) + "\n", ""])"));
}

TEST_CASE("keys of a job that has just expired are waited for") {
  CHECK(watches_from("2", R"(
nonces = ["0" * 32 + " 7"] * 2 # an expired lease
streams = [""])"));
}

} // namespace ddp::test::etcd_test
