// The program of ddprun that talks to c10d's key-value store: a separate
// process, because loading LibTorch takes longer than all of ddprun's work.
//
// ddprun-store DESCRIPTOR
//   serves a store for the ranks at a listening socket that it inherited.
// ddprun-store --rdzv-member OPTIONS
//   carries an agent's part of the shared log (see HelperOptions), and serves
//   its store if the endpoint is on this host.
//
// Each runs until it is killed or its agent dies.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <netdb.h>
#include <unistd.h>

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <common/text.h>
#include <launcher/rendezvous/authentication.h>
#include <launcher/rendezvous/log/block.h>
#include <launcher/rendezvous/log/log_helper.h>
#include <launcher/rendezvous/log/shared_log.h>
#include <launcher/sockets.h>

/// Replaces libc's function for c10d, which looks up the name of each peer for
/// its messages: a name server that does not answer would block the store for
/// ten seconds each time.
extern "C" __attribute__((visibility("default"))) int getnameinfo(
    const sockaddr* address,
    socklen_t size,
    char* host,
    socklen_t host_size,
    char* port,
    socklen_t port_size,
    int flags) {
  static const auto libc =
      reinterpret_cast<decltype(&getnameinfo)>(dlsym(RTLD_NEXT, "getnameinfo"));
  return libc(
      address, size, host, host_size, port, port_size, flags | NI_NUMERICHOST);
}

namespace ddp {
namespace {

constexpr std::chrono::seconds kConnectTime{10};
// A wait for an entry is renewed at this interval, since firewalls forget idle
// connections.
constexpr std::chrono::seconds kWaitTime{30};
constexpr std::chrono::hours kNoLimit{24};
constexpr char kNonce[] = "nonce"; // set before anything else
constexpr char kPosts[] = "posts"; // a queue of entries
constexpr char kBlock[] = "log/"; // and a number from 0 on, without holes
constexpr char kBeat[] = "beat/"; // and a member: a counter
constexpr size_t kNonceSize = 32; // hex digits
// Replaces an empty value, and contains no entry.
constexpr char kNoBlock[] = "-";
constexpr size_t kLargestBlock = 1 << 20;
// All members read each block. With more members, blocks are rarer and contain
// more entries, so a start takes equally many requests of each member.
constexpr std::chrono::microseconds kPauseForMember{250};
constexpr int64_t kMostPaused = 4096;

/// Runs a task on a store; throws its errors again without c10d's advice.
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

std::string block_key(uint64_t index) {
  return kBlock + std::to_string(index);
}

using StorePointer = c10::intrusive_ptr<c10d::Store>;

/// A log in c10d's key-value store, which one node serves. Members post entries
/// to a queue there, and that node's helper moves them into blocks.
class TcpLog : public LogEngine {
 public:
  SocketAddress serve(int listener) override;
  void connect(const SocketAddress& endpoint, const std::string& address)
      override;
  std::string nonce() override;
  void read(const std::function<void(const std::string&)>& take) override;
  void append(const std::string& entry) override;
  std::vector<int64_t> beat(
      const std::string& member,
      int64_t count,
      const std::vector<std::string>& others) override;

 private:
  void open(const SocketAddress& server);
  std::string read_block(uint64_t index);

  StorePointer server_;
  StorePointer reader_; // blocked in a wait most of the time, so separate
  StorePointer writer_;
  std::vector<std::string> watched_;
};

// `limit` is the time limit for an answer.
StorePointer connect_to(
    const SocketAddress& server,
    std::chrono::milliseconds limit) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(server.port);
  options.waitWorkers = false;
  options.timeout = kConnectTime;
  auto store = c10::make_intrusive<c10d::TCPStore>(server.host, options);
  store->setTimeout(limit);
  return store;
}

// Serves for as long as the result exists. Throws c10::Error.
StorePointer serve_store(int listener) {
  const SocketAddress address = own_address(listener);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(address.port);
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listener;
  return c10::make_intrusive<c10d::TCPStore>(address.host, options);
}

// All queued posts as a block; waits for the first one for some time.
std::string take_posts(const StorePointer& store) {
  std::string block;
  try {
    int64_t waiting = 1;
    while (waiting > 0 && block.size() < kLargestBlock) {
      const auto post = store->queuePop(kPosts, block.empty());
      if (post.size() <= kLargestEntry) {
        add_block_entry({post.begin(), post.end()}, &block);
      }
      waiting = waiting > 1 ? waiting - 1 : store->queueLen(kPosts);
    }
  } catch (const c10::DistStoreError&) { // none, or another client took it
  }
  return block;
}

[[noreturn]] void move_posts(const StorePointer& store) {
  for (uint64_t next = 0;;) {
    const auto block = take_posts(store);
    while (!block.empty() &&
           store->compareSet(block_key(next++), "", block) != block) {
    }
    const auto members = store->getNumKeys() - static_cast<int64_t>(next);
    std::this_thread::sleep_for(
        kPauseForMember * std::clamp<int64_t>(members, 1, kMostPaused));
  }
}

SocketAddress TcpLog::serve(int listener) {
  return with_reasons([&] {
    server_ = serve_store(listener);
    server_->set(kNonce, random_hex(kNonceSize / 2));
    const SocketAddress address = own_address(listener);
    open(address);
    const auto mover = connect_to(address, kWaitTime);
    std::thread([mover]() noexcept { move_posts(mover); }).detach();
    return address;
  });
}

void TcpLog::connect(
    const SocketAddress& endpoint,
    const std::string& address) {
  with_reasons([&] { open({address, endpoint.port}); });
}

void TcpLog::open(const SocketAddress& server) {
  reader_ = connect_to(server, kWaitTime);
  // A hanging call may recover: the agent decides, by missing beats.
  writer_ = connect_to(server, kNoLimit);
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
    read_block_entries(with_reasons([&] { return read_block(index); }), take);
  }
}

std::string TcpLog::read_block(uint64_t index) {
  const std::string key = block_key(index);
  for (;;) {
    try {
      const std::string value = reader_->get_to_str(key);
      // compareSet() treats an empty value as free: fill it, so that all
      // readers find the same value.
      return value.empty() ? reader_->compareSet(key, "", kNoBlock) : value;
    } catch (const c10::DistStoreError&) { // none for some time
    }
  }
}

void TcpLog::append(const std::string& entry) {
  with_reasons([&] {
    writer_->queuePush(kPosts, {entry.begin(), entry.end()});
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
    }
    keys.push_back(kBeat + member);
    // Not by add(): the store closes the connection if the value is not a
    // number, and any process can write such a value.
    writer_->set(keys.back(), std::to_string(count));
    // Reading waits for keys to exist; a member's key exists before it posts.
    if (others != watched_ && !writer_->check(keys)) {
      for (const std::string& each : keys) {
        writer_->compareSet(each, "", "0");
      }
    }
    watched_ = others;
    const auto counts = writer_->multiGet(keys);
    std::vector<int64_t> result;
    for (size_t i = 0; i < others.size(); ++i) {
      const std::string text(counts[i].begin(), counts[i].end());
      const auto said = std::strtoll(text.c_str(), nullptr, 10);
      result.push_back(std::max<int64_t>(said, 0)); // any process can write
    }
    return result;
  });
}

// Numbers, since the names of the levels differ between versions.
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
  std::signal(SIGPIPE, SIG_IGN); // a client that dies must not end the store
  // Hides messages that an address has no name, or that a client died.
  FLAGS_caffe2_log_level = ddp::kErrors;
  const int listener = count == 1 ? std::atoi(arguments[0].c_str()) : -1;
  if (ddp::local_address(listener).port > 0) {
    ddp::serve(listener);
  }
  // Errors go to the agent, which reports them once.
  FLAGS_caffe2_log_level = ddp::kFatalErrors;
  if (count == 2 && arguments[0] == "--rdzv-member") {
    ddp::TcpLog log;
    ddp::run_log_helper(log, ddp::helper_options(arguments[1]));
  }
  std::fputs("ddprun-store is started by ddprun\n", stderr);
  return 2;
}
