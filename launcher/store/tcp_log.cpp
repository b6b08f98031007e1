#include <launcher/store/tcp_log.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <common/text.h>
#include <launcher/rendezvous/authentication.h>

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

} // namespace

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
    throw std::runtime_error("it is no store of ddprun's");
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

} // namespace ddp
