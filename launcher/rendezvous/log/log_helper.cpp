#include <launcher/rendezvous/log/log_helper.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <common/poll_until.h>
#include <common/scheduler/launch_error.h>
#include <common/text.h>
#include <launcher/rendezvous/endpoint.h>
#include <launcher/rendezvous/log/entry.h>
#include <launcher/rendezvous/log/shared_log.h>

namespace ddp {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SocketAddress, host, port)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    EtcdAccess,
    cert,
    key,
    cacert,
    user,
    password_file)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    NodeOptions,
    host,
    port,
    etcd,
    etcd_access,
    bind,
    local_address)

namespace {

using Clock = std::chrono::steady_clock;
using EventKind = SharedLog::Event::Kind;

constexpr int kRetryMilliseconds = 200;
constexpr std::chrono::milliseconds kBeatTime{1000};
constexpr unsigned kLastWillSeconds = 1;
constexpr unsigned kLeaveSeconds = 2;
// The number of beats that an agent may leave unanswered.
constexpr int kMissedBeats = 3;

class LogHelper {
 public:
  LogHelper(LogEngine& engine, const HelperOptions& options)
      : engine_(engine),
        options_(options),
        beat_interval_(std::min(kBeatTime, options.nodes.node_timeout / 5)),
        endpoint_(options.endpoints().front()) {}

  [[noreturn]] void run();

 private:
  void connect();
  bool serve(const std::string& address);
  bool find_log();
  std::string own_address() const;
  bool try_endpoint(const SocketAddress& endpoint, std::string* why);
  void tell(EventKind kind, const std::string& text);
  [[noreturn]] void lose(const std::string& why);
  template <typename Task>
  void guard(const Task& task);

  void read_entries();
  void serve_agent();
  void handle(const std::string& message);
  void watch(const std::string& members);
  void keep_last_will(const std::string& text);
  [[noreturn]] void leave();
  void beat();

  LogEngine& engine_;
  const HelperOptions& options_;
  const std::chrono::milliseconds beat_interval_;
  SocketAddress endpoint_; // that answered
  std::string local_address_; // of the route to it
  bool serves_ = false;
  FileDescriptor served_at_;
  std::string unreachable_; // why
  std::atomic_flag lost_ = ATOMIC_FLAG_INIT;
  std::string last_will_;
  Clock::time_point alive_at_; // the agent
  int64_t beats_ = 0; // of its own, so far
  std::vector<std::string> watched_;
};

void LogHelper::run() {
  guard([this] { connect(); });
  std::thread([this] { guard([this] { read_entries(); }); }).detach();
  guard([this] { serve_agent(); });
  // The agent has ended.
  if (!last_will_.empty()) {
    guard([this] { engine_.append(last_will_); });
  }
  _exit(0);
}

template <typename Task>
void LogHelper::guard(const Task& task) {
  try {
    task();
  } catch (const LaunchError& error) {
    tell(
        EventKind::kRejected,
        std::to_string(error.exit_code()) + " " + error.what());
    _exit(1);
  } catch (const std::exception& error) {
    lose(first_line(error.what()));
  }
}

void LogHelper::lose(const std::string& why) {
  if (lost_.test_and_set()) { // by the other thread, which ends the process
    for (;;) {
      pause();
    }
  }
  tell(
      EventKind::kLost,
      "the rendezvous at " + describe_endpoint(endpoint_.host, endpoint_.port) +
          " is lost: " + why);
  _exit(1);
}

void LogHelper::tell(EventKind kind, const std::string& text) {
  // Beats need not be queued for a suspended agent.
  const int flags = kind == EventKind::kBeats ? MSG_DONTWAIT : 0;
  send_message(kHelperChannel, static_cast<char>(kind) + text, flags);
}

void LogHelper::connect() {
  auto address = endpoint_address(options_.nodes);
  while (!(address && serve(*address)) && !find_log()) {
    pollfd end{kHelperChannel, 0, 0};
    if (poll(&end, 1, kRetryMilliseconds) > 0) {
      _exit(0); // the agent has ended
    }
    if (!address) { // in Kubernetes, a pod's own name resolves late
      address = endpoint_address(options_.nodes);
    }
  }
  tell(
      EventKind::kConnected,
      engine_.nonce() + " " + own_address() + (serves_ ? " 1" : " 0"));
}

// A retry can succeed, since the process that took the port may have ended.
bool LogHelper::serve(const std::string& address) {
  auto listener = listen_at_endpoint(options_.nodes, address);
  if (!listener) {
    return false;
  }
  SocketAddress served;
  try {
    served = engine_.serve(listener->socket.get());
  } catch (const std::exception& error) {
    throw LaunchError(
        kExitInternal,
        std::string("cannot serve the nodes' rendezvous: ") + error.what());
  }
  serves_ = true;
  served_at_ = std::move(listener->socket);
  // If it listens on all addresses, other nodes need an address that they can
  // reach.
  std::string why;
  const auto route = is_wildcard(address)
      ? find_route(endpoint_.host, endpoint_.port, &why)
      : std::nullopt;
  local_address_ = route ? route->local : served.host;
  return true;
}

// The address at which other nodes reach this node.
std::string LogHelper::own_address() const {
  const NodeOptions& nodes = options_.nodes;
  if (!nodes.local_address.empty()) {
    return local_address_of(nodes);
  }
  const std::string bound = bound_address(nodes, local_address_);
  return is_wildcard(bound) ? local_address_ : bound;
}

bool LogHelper::find_log() {
  std::string text;
  const auto endpoints = options_.endpoints();
  for (const SocketAddress& each : endpoints) {
    std::string why;
    if (try_endpoint(each, &why)) {
      return true;
    }
    const auto port =
        endpoints.size() > 1 ? ":" + std::to_string(each.port) : "";
    text += (text.empty() ? "" : "; ") + each.host + port + ": " + why;
  }
  if (text != unreachable_) {
    tell(EventKind::kUnreachable, text);
    unreachable_ = text;
  }
  return false;
}

bool LogHelper::try_endpoint(const SocketAddress& endpoint, std::string* why) {
  const auto route = find_route(endpoint.host, endpoint.port, why);
  if (!route) {
    return false;
  }
  try {
    endpoint_ = endpoint;
    local_address_ = route->local;
    if (unreachable_.empty()) { // until more is known
      tell(
          EventKind::kUnreachable,
          endpoint.host +
              ": a process listens there, but does not answer; if it is "
              "another program, use another port");
    }
    engine_.connect(endpoint, route->remote);
    return true;
  } catch (const LogRejected&) {
    throw;
  } catch (const std::exception& error) { // the log is gone again
    *why = first_line(error.what());
    return false;
  }
}

void LogHelper::read_entries() {
  engine_.read([this](const std::string& entry) {
    if (!entry.empty() && entry.size() <= kLargestEntry) {
      tell(EventKind::kEntry, entry);
    }
  });
}

void LogHelper::serve_agent() {
  auto next_beat = Clock::now();
  alive_at_ = next_beat;
  for (;;) {
    pollfd channel{kHelperChannel, POLLIN, 0};
    poll(&channel, 1, detail::milliseconds_until(next_beat));
    if (Clock::now() >= next_beat) {
      beat();
      next_beat = Clock::now() + beat_interval_;
    }
    const auto message = receive_message(kHelperChannel, MSG_DONTWAIT);
    if (message && message->empty()) {
      return;
    }
    if (message) {
      handle(*message);
    }
  }
}

void LogHelper::handle(const std::string& message) {
  const std::string text = message.substr(1);
  if (message[0] == log_message::kPost) {
    engine_.append(text);
  } else if (message[0] == log_message::kWatch) {
    watch(text);
  } else if (message[0] == log_message::kLastWill && !serves_) {
    keep_last_will(text);
  } else if (message[0] == log_message::kLeave) {
    leave();
  }
}

void LogHelper::leave() {
  prctl(PR_SET_PDEATHSIG, 0);
  alarm(kLeaveSeconds); // if the network blocks it
  try {
    engine_.leave();
  } catch (const std::exception&) { // the remaining keys expire
  }
  _exit(0);
}

// From now on, the helper outlives the agent until it has appended the entry,
// but at most for kLastWillSeconds.
void LogHelper::keep_last_will(const std::string& text) {
  last_will_ = text;
  std::signal(SIGRTMIN, [](int) { alarm(kLastWillSeconds); });
  prctl(PR_SET_PDEATHSIG, SIGRTMIN);
}

void LogHelper::watch(const std::string& members) {
  alive_at_ = Clock::now();
  watched_ = split_lines(members);
}

void LogHelper::beat() {
  // Other nodes must not wait for an agent that hangs.
  if (Clock::now() < alive_at_ + kMissedBeats * beat_interval_) {
    ++beats_;
  }
  // Only an answer shows that the log works.
  const auto counts = engine_.beat(options_.member, beats_, watched_);
  std::string lines;
  for (size_t i = 0; i < watched_.size(); ++i) {
    if (counts[i] > 0 || counts[i] == kDead) {
      lines += watched_[i] + " " + std::to_string(counts[i]) + "\n";
    }
  }
  tell(EventKind::kBeats, lines);
}

} // namespace

std::vector<SocketAddress> HelperOptions::endpoints() const {
  return nodes.has_service()
      ? nodes.etcd
      : std::vector<SocketAddress>{{nodes.host, nodes.port}};
}

std::string helper_word(const HelperOptions& options) {
  const NodeOptions& nodes = options.nodes;
  const json value{
      {"member", options.member},
      {"job", options.job},
      {"nodes", nodes},
      {"hosts_log", nodes.hosts_log ? json(*nodes.hosts_log) : json()},
      {"node_timeout", nodes.node_timeout.count()}};
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

HelperOptions helper_options(const std::string& word) {
  const json value = json::parse(word);
  HelperOptions options{value.at("member"), value.at("job"), value.at("nodes")};
  options.nodes.node_timeout =
      std::chrono::milliseconds(value.at("node_timeout").get<int64_t>());
  if (!value.at("hosts_log").is_null()) {
    options.nodes.hosts_log = value["hosts_log"].get<bool>();
  }
  return options;
}

void run_log_helper(LogEngine& engine, const HelperOptions& options) {
  LogHelper(engine, options).run();
}

} // namespace ddp
