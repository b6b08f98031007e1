// The one program of ddprun's that speaks to c10d's key-value store. A process
// of its own, because loading LibTorch takes longer than all that ddprun does.
//
// ddprun-store DESCRIPTOR
//   serves a store for the ranks at a listening socket that it inherited.
// ddprun-store --rdzv-member OPTIONS
//   carries an agent's part of the shared log (see HelperOptions), and serves
//   its store where the endpoint is here.
//
// Each lives until it is killed, or its agent dies.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <common/text.h>
#include <launcher/rendezvous/authentication.h>
#include <launcher/rendezvous/log/log_helper.h>
#include <launcher/sockets.h>

namespace ddp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kConnectTime{10};
// A wait for an entry is renewed that often: firewalls forget quiet
// connections.
constexpr std::chrono::seconds kWaitTime{30};
constexpr char kNonce[] = "nonce"; // set before anything else
constexpr char kEntry[] = "log/"; // and a number from 0 on, without holes
constexpr char kBeat[] = "beat/"; // and a member: a counter
constexpr size_t kNonceSize = 32; // hex digits
// Takes the place of an empty value, and is no entry: it lacks the space.
constexpr char kNoEntry[] = "-";

/// Does something with a store; what goes wrong is told without c10d's advice.
template <typename Task>
auto with_reasons(const Task& task) {
  try {
    return task();
  } catch (const c10::Error& error) {
    const std::string text = first_line(error.what_without_backtrace());
    throw std::runtime_error(
        text.find("closed") == std::string::npos ? text
                                                 : "the connection was closed");
  }
}

std::string entry_key(uint64_t index) {
  return kEntry + std::to_string(index);
}

/// A log in c10d's key-value store, which one node serves.
class TcpLog : public LogEngine {
 public:
  SocketAddress serve(int listener) override;
  void connect(const SocketAddress& endpoint, const std::string& address)
      override;
  std::string nonce() override;
  void read(const std::function<void(const std::string&)>& take) override;
  bool append(uint64_t place, const std::string& value) override;
  std::vector<int64_t> beat(
      const std::string& member,
      int64_t count,
      const std::vector<std::string>& others) override;

 private:
  using StorePointer = c10::intrusive_ptr<c10d::Store>;

  void open(const std::string& host, int port);
  std::string read_entry(uint64_t index);

  StorePointer server_;
  StorePointer reader_; // blocked in a wait most of the time, so on its own
  StorePointer writer_;
  std::vector<std::string> watched_;
};

// For as long as the result lives. Throws c10::Error.
c10::intrusive_ptr<c10d::Store> serve_store(int listener) {
  const SocketAddress address = own_address(listener);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(address.port);
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listener;
  return c10::make_intrusive<c10d::TCPStore>(address.host, options);
}

SocketAddress TcpLog::serve(int listener) {
  return with_reasons([&] {
    server_ = serve_store(listener);
    server_->set(kNonce, random_hex(kNonceSize / 2));
    const SocketAddress address = own_address(listener);
    open(address.host, address.port);
    return address;
  });
}

void TcpLog::connect(
    const SocketAddress& endpoint,
    const std::string& address) {
  with_reasons([&] { open(address, endpoint.port); });
}

void TcpLog::open(const std::string& host, int port) {
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

std::string TcpLog::nonce() {
  const auto nonce = with_reasons([&] { return reader_->get_to_str(kNonce); });
  if (nonce.size() != kNonceSize ||
      nonce.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw std::runtime_error("it is not a ddprun store");
  }
  return nonce;
}

void TcpLog::read(const std::function<void(const std::string&)>& take) {
  for (uint64_t index = 0;; ++index) {
    take(with_reasons([&] { return read_entry(index); }));
  }
}

std::string TcpLog::read_entry(uint64_t index) {
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

bool TcpLog::append(uint64_t place, const std::string& value) {
  return with_reasons([&] {
    return writer_->compareSet(entry_key(place), "", value) == value;
  });
}

std::vector<int64_t> TcpLog::beat(
    const std::string& member,
    int64_t count,
    const std::vector<std::string>& others) {
  return with_reasons([&] {
    std::vector<std::string> keys;
    for (const std::string& each : others) {
      keys.push_back(kBeat + each);
      if (others != watched_) { // reading waits for keys to exist
        writer_->compareSet(keys.back(), "", "0");
      }
    }
    watched_ = others;
    keys.push_back(kBeat + member);
    // Not by add(): the store hangs up where the value is no number, and
    // anybody can have put that there.
    writer_->set(keys.back(), std::to_string(count));
    const auto counts = writer_->multiGet(keys);
    std::vector<int64_t> result;
    for (size_t i = 0; i < others.size(); ++i) {
      const std::string text(counts[i].begin(), counts[i].end());
      const auto said = std::strtoll(text.c_str(), nullptr, 10);
      result.push_back(std::max<int64_t>(said, 0)); // anybody can write there
    }
    return result;
  });
}

bool is_listener(const std::string& descriptor) {
  return local_address(std::atoi(descriptor.c_str())).port > 0;
}

// By numbers: the names of the levels differ over versions.
constexpr int kErrors = 2;
constexpr int kFatalErrors = 3;

[[noreturn]] void serve(int listener) {
  try {
    const auto store = serve_store(listener);
    while (store) {
      pause();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddprun: cannot serve the store: %s\n", error.what());
  }
  _exit(1);
}

} // namespace
} // namespace ddp

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const size_t count = arguments.size();
  std::signal(SIGPIPE, SIG_IGN); // a client that dies shall not end the store
  // Not that an address has no name, or that a client died.
  FLAGS_caffe2_log_level = ddp::kErrors;
  if (count == 1 && ddp::is_listener(arguments[0])) {
    ddp::serve(std::atoi(arguments[0].c_str()));
  }
  // What goes wrong is told to the agent, which says it once.
  FLAGS_caffe2_log_level = ddp::kFatalErrors;
  if (count == 2 && arguments[0] == "--rdzv-member") {
    ddp::TcpLog log;
    ddp::run_log_helper(log, ddp::helper_options(arguments[1]));
  }
  std::fputs("ddprun-store is started by ddprun\n", stderr);
  return 2;
}
