#include <launcher/store/log_member.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <common/text.h>
#include <launcher/rendezvous/authentication.h>
#include <launcher/rendezvous/log/log_channel.h>
#include <launcher/rendezvous/log/shared_log.h>
#include <launcher/rendezvous/route.h>
#include <launcher/store/log_keys.h>
#include <launcher/store/serve.h>

namespace ddp {
namespace {

using Clock = std::chrono::steady_clock;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

constexpr int kRetryMilliseconds = 50; // at first
constexpr int kLaterRetryMilliseconds = 500;
constexpr std::chrono::seconds kFirstTime{5};
constexpr std::chrono::seconds kConnectTime{10};
// A wait for an entry is renewed that often: firewalls forget quiet
// connections.
constexpr std::chrono::seconds kWaitTime{30};
constexpr std::chrono::seconds kLastWillTime{1};
// Answers to beats that an agent may owe.
constexpr int kMissedBeats = 3;
// Takes the place of an empty value, and is no entry: it lacks the space.
constexpr char kNoEntry[] = "-";

// What went wrong, without c10d's advice.
std::string reason_of(const std::exception& error) {
  const auto* known = dynamic_cast<const c10::Error*>(&error);
  const std::string text =
      first_line(known ? known->what_without_backtrace() : error.what());
  return text.find("closed") == std::string::npos ? text
                                                  : "the connection was closed";
}

std::string entry_key(uint64_t index) {
  return log_keys::kEntry + std::to_string(index);
}

std::string as_text(const std::vector<uint8_t>& bytes) {
  return std::string(bytes.begin(), bytes.end());
}

class LogMember {
 public:
  explicit LogMember(const MemberOptions& options)
      : options_(options), endpoint_(options.endpoints.front()) {}

  [[noreturn]] void run();

 private:
  void connect();
  void wait_for_store();
  bool try_store(const SocketAddress& endpoint, std::string* why);
  void open_stores(const std::string& host, int port);
  void tell(char kind, const std::string& text);
  [[noreturn]] void lose(const std::string& why);
  template <typename Task>
  void guard(const Task& task);

  void read_entries();
  std::string read_entry(uint64_t index);
  void serve_agent();
  void handle(const std::string& message);
  void append(const std::string& text);
  void watch(const std::string& members);
  void keep_last_will(const std::string& text);
  void beat();

  const MemberOptions& options_;
  SocketAddress endpoint_; // that answered
  std::string local_address_;
  std::string unreachable_; // why
  StorePointer server_;
  StorePointer reader_; // blocked in a wait most of the time, so on its own
  StorePointer writer_;
  std::atomic<uint64_t> read_{0}; // entries so far
  std::atomic_flag lost_ = ATOMIC_FLAG_INIT;
  uint64_t next_free_ = 0; // no place before this one is
  std::string last_will_;
  Clock::time_point alive_at_; // the agent
  int64_t beats_ = 0; // of its own, so far
  std::vector<std::string> watched_;
  std::vector<std::string> beat_keys_;
};

void LogMember::run() {
  guard([this] { connect(); });
  std::thread([this] { guard([this] { read_entries(); }); }).detach();
  guard([this] { serve_agent(); });
  // The agent has gone.
  if (!last_will_.empty()) {
    guard([this] { append(last_will_); });
  }
  _exit(0);
}

template <typename Task>
void LogMember::guard(const Task& task) {
  try {
    task();
  } catch (const std::exception& error) {
    lose(reason_of(error));
  }
}

void LogMember::lose(const std::string& why) {
  if (lost_.test_and_set()) { // by the other thread, which ends the process
    for (;;) {
      pause();
    }
  }
  tell(
      log_message::kLost,
      "the rendezvous at " + endpoint_.host + ":" +
          std::to_string(endpoint_.port) + " is lost: " + why);
  _exit(1);
}

void LogMember::tell(char kind, const std::string& text) {
  // Beats of an agent that is suspended need not be kept for it.
  const int flags = kind == log_message::kBeats ? MSG_DONTWAIT : 0;
  send_message(options_.channel, kind + text, flags);
}

void LogMember::connect() {
  if (options_.listener >= 0) {
    server_ = serve_log(options_.listener);
    const SocketAddress address = own_address(options_.listener);
    open_stores(address.host, address.port);
    // Where it listens on all addresses, others need one that they can reach.
    const bool on_all = local_address(options_.listener).host != address.host;
    std::string why;
    const auto route = on_all ? find_route(endpoint_.host, endpoint_.port, &why)
                              : std::optional<Route>();
    local_address_ = route ? route->local : address.host;
  } else {
    wait_for_store();
  }
  const std::string nonce = reader_->get_to_str(log_keys::kNonce);
  TORCH_CHECK(
      nonce.size() == log_keys::kNonceSize &&
          nonce.find_first_not_of("0123456789abcdef") == std::string::npos,
      "it is no store of ddprun's");
  tell(
      log_message::kConnected,
      nonce + " " + local_address_ + " " + endpoint_.host + " " +
          std::to_string(endpoint_.port));
}

void LogMember::wait_for_store() {
  const auto start = Clock::now();
  for (;;) {
    std::string text;
    for (const SocketAddress& each : options_.endpoints) {
      std::string why;
      if (try_store(each, &why)) {
        return;
      }
      text += (text.empty() ? "" : "; ") + each.host + ": " + why;
    }
    if (text != unreachable_) {
      tell(log_message::kUnreachable, text);
      unreachable_ = text;
    }
    pollfd end{options_.channel, 0, 0};
    const bool is_new = Clock::now() < start + kFirstTime;
    if (poll(&end, 1, is_new ? kRetryMilliseconds : kLaterRetryMilliseconds) >
        0) {
      _exit(0); // the agent has gone
    }
  }
}

bool LogMember::try_store(const SocketAddress& endpoint, std::string* why) {
  const auto route = find_route(endpoint.host, endpoint.port, why);
  if (!route) {
    return false;
  }
  try {
    endpoint_ = endpoint;
    local_address_ = route->local;
    if (unreachable_.empty()) { // until more is known
      tell(
          log_message::kUnreachable,
          endpoint.host + ": something listens there, and does not answer");
    }
    open_stores(route->remote, endpoint.port);
    return true;
  } catch (const std::exception& error) { // gone again
    *why = reason_of(error);
    return false;
  }
}

void LogMember::open_stores(const std::string& host, int port) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = kConnectTime;
  reader_ = c10::make_intrusive<c10d::TCPStore>(host, options);
  writer_ = c10::make_intrusive<c10d::TCPStore>(host, options);
  reader_->setTimeout(kWaitTime);
  // What hangs may go on: that is for the agent to judge, by missing beats.
  writer_->setTimeout(std::chrono::hours(24));
}

void LogMember::read_entries() {
  for (;;) {
    const std::string value = read_entry(read_);
    ++read_;
    // Before the space is what makes the value the only one of its kind; what
    // anybody else has put there may lack it.
    const size_t space = value.find(' ');
    const size_t size =
        space == std::string::npos ? 0 : value.size() - space - 1;
    if (size > 0 && size <= kLargestEntry) {
      tell(log_message::kEntry, value.substr(space + 1));
    }
  }
}

std::string LogMember::read_entry(uint64_t index) {
  const std::string key = entry_key(index);
  for (;;) {
    const auto start = Clock::now();
    try {
      const std::string value = reader_->get_to_str(key);
      // To append, an empty value is a free place: fill it, so that all readers
      // find the same there.
      return value.empty() ? reader_->compareSet(key, "", kNoEntry) : value;
    } catch (const c10::Error&) {
      if (Clock::now() - start < kWaitTime) {
        throw;
      }
    }
  }
}

void LogMember::serve_agent() {
  auto next_beat = Clock::now();
  alive_at_ = next_beat;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(next_beat - Clock::now());
    pollfd channel{options_.channel, POLLIN, 0};
    poll(&channel, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (Clock::now() >= next_beat) {
      beat();
      next_beat = Clock::now() + options_.beat_interval;
    }
    const auto message = receive_message(options_.channel, MSG_DONTWAIT);
    if (message && message->empty()) {
      return;
    }
    if (message) {
      handle(*message);
    }
  }
}

void LogMember::handle(const std::string& message) {
  const std::string text = message.substr(1);
  if (message[0] == log_message::kPost) {
    append(text);
  } else if (message[0] == log_message::kWatch) {
    watch(text);
  } else if (message[0] == log_message::kAlive) {
    alive_at_ = Clock::now();
  } else if (message[0] == log_message::kLastWill && !server_) {
    keep_last_will(text);
  }
}

// From now on the helper may outlive the agent, for as long as that takes.
void LogMember::keep_last_will(const std::string& text) {
  last_will_ = text;
  std::thread([this] {
    pollfd end{options_.channel, 0, 0};
    poll(&end, 1, -1);
    std::this_thread::sleep_for(kLastWillTime);
    _exit(0); // where the network holds it up
  }).detach();
  prctl(PR_SET_PDEATHSIG, 0);
}

void LogMember::append(const std::string& text) {
  // No two values are the same, so who finds its own there has written it.
  const std::string value = options_.member + ":" + random_hex(8) + " " + text;
  next_free_ = std::max<uint64_t>(next_free_, read_);
  while (writer_->compareSet(entry_key(next_free_++), "", value) != value) {
  }
}

void LogMember::watch(const std::string& members) {
  watched_.clear();
  beat_keys_.clear();
  std::istringstream lines(members);
  for (std::string member; std::getline(lines, member);) {
    watched_.push_back(member);
    beat_keys_.push_back(log_keys::kBeat + member);
    // Reading waits for keys to exist.
    writer_->compareSet(beat_keys_.back(), "", "0");
  }
}

void LogMember::beat() {
  // Not by add(): the store hangs up where the value is no number, and anybody
  // can have put that there.
  const std::string own_key = log_keys::kBeat + options_.member;
  // For an agent that stands still nobody shall wait.
  if (Clock::now() < alive_at_ + kMissedBeats * options_.beat_interval) {
    ++beats_;
  }
  writer_->set(own_key, std::to_string(beats_));
  // Only an answer says that the store lives.
  std::vector<std::string> keys = beat_keys_;
  keys.push_back(own_key);
  const auto counts = writer_->multiGet(keys);
  std::string lines;
  for (size_t i = 0; i < watched_.size(); ++i) {
    const auto count = std::strtoll(as_text(counts[i]).c_str(), nullptr, 10);
    if (count > 0) {
      lines += watched_[i] + " " + std::to_string(count) + "\n";
    }
  }
  tell(log_message::kBeats, lines);
}

} // namespace

void run_log_member(const MemberOptions& options) {
  LogMember(options).run();
}

} // namespace ddp
