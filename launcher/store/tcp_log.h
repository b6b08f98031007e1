#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <launcher/rendezvous/log/log_helper.h>

namespace ddp {

/// Serves c10d's key-value store at a listening socket for as long as the
/// result lives. Throws c10::Error.
c10::intrusive_ptr<c10d::Store> serve_store(int listener);

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

} // namespace ddp
