#pragma once

// A SharedLog with the events that it has returned.
#include <tests/support/catch_plain.h>

#include <poll.h>
#include <sys/wait.h>

#include <launcher/rendezvous/log/shared_log.h>
#include <launcher/sockets.h>
#include <tests/launcher/launched_job.h>
#include <tests/support/free_port.h>
#include <tests/support/skip.h>
#include <tests/support/temporary_folder.h>

namespace ddp::test {

using namespace std::chrono_literals;
using Kind = SharedLog::Event::Kind;

constexpr auto kPatience = 20s;

// Collects the events of one SharedLog.
class LogProcess {
 public:
  LogProcess(
      const std::string& name,
      const std::string& host,
      int port,
      bool serves = false,
      const std::string& bind = "") {
    HelperOptions options;
    options.member = name;
    options.nodes.host = host;
    options.nodes.port = port;
    options.nodes.hosts_log = serves;
    options.nodes.bind = bind;
    options.nodes.node_timeout = 250ms; // the interval of beats is a fifth
    log_ = std::make_unique<SharedLog>(STORE_PATH, options);
    pid_ = log_->pid();
  }
  ~LogProcess() {
    log_.reset();
    waitpid(pid_, nullptr, 0);
  }
  LogProcess(const LogProcess&) = delete;
  LogProcess& operator=(const LogProcess&) = delete;

  void take() {
    while (const auto event = log_->next()) {
      REQUIRE(lost.empty());
      const bool is_first =
          event->kind == Kind::kConnected || event->kind == Kind::kUnreachable;
      const bool is_last =
          event->kind == Kind::kRejected || event->kind == Kind::kLost;
      REQUIRE((is_first == nonce.empty() || is_last));
      switch (event->kind) {
        case Kind::kUnreachable:
          break;
        case Kind::kConnected:
          nonce = event->text;
          own_address = event->own_address;
          break;
        case Kind::kEntry:
          entries.push_back(event->text);
          break;
        case Kind::kBeats:
          beats = event->beats;
          log_->watch(watched);
          ++beat_events;
          break;
        case Kind::kRejected:
        case Kind::kLost:
          lost = event->text;
      }
    }
  }

  void stop() const {
    kill(pid_, SIGSTOP);
    wait_for_state(pid_, "T");
  }
  void go_on() const {
    kill(pid_, SIGCONT);
  }

  SharedLog& log() {
    return *log_;
  }
  pid_t pid() const {
    return pid_;
  }

  std::string nonce;
  std::string own_address;
  Texts entries;
  std::map<std::string, int64_t> beats;
  int beat_events = 0;
  std::set<std::string> watched;
  std::string lost;

 private:
  std::unique_ptr<SharedLog> log_;
  pid_t pid_ = -1;
};

using Members = std::vector<LogProcess*>;

// Takes events until the condition holds.
inline void wait_until(
    const Members& members,
    const std::function<bool()>& holds) {
  const auto deadline = Clock::now() + kPatience;
  for (;;) {
    std::vector<pollfd> polled;
    for (LogProcess* each : members) {
      each->take();
      if (each->lost.empty()) {
        polled.push_back({each->log().fd(), POLLIN, 0});
      }
    }
    if (holds()) {
      return;
    }
    REQUIRE(Clock::now() < deadline);
    poll(polled.data(), polled.size(), 100);
  }
}

// Takes events until the condition holds for each member.
inline void wait_until_all(
    const Members& members,
    const std::function<bool(const LogProcess&)>& holds) {
  wait_until(members, [&] {
    return std::all_of(members.begin(), members.end(), [&](LogProcess* each) {
      return holds(*each);
    });
  });
}

inline void wait_until_connected(const Members& members) {
  wait_until_all(
      members, [](const LogProcess& each) { return !each.nonce.empty(); });
}

struct Trio {
  Trio()
      : port(free_port()),
        host("a", "127.0.0.1", port, true),
        second("b", "127.0.0.1", port),
        third("c", "127.0.0.1", port) {
    wait_until_connected(all);
  }

  int port;
  LogProcess host;
  LogProcess second;
  LogProcess third;
  const Members all = {&host, &second, &third};
};

} // namespace ddp::test
