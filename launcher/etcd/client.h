#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <launcher/rendezvous/node_options.h>
#include <launcher/sockets.h>

namespace ddp {

/// Calls of etcd's v3 API, as JSON over HTTP (its gateway). For one thread.
class EtcdClient {
 public:
  using Json = nlohmann::json;

  /// A call tries again for --node-timeout where no member answers.
  explicit EtcdClient(const NodeOptions& nodes);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  /// The next calls ask this member first.
  void begin_with(const SocketAddress& member);

  /// Asks that one what it is. Throws std::runtime_error where it does not
  /// answer, LogRefused where it cannot be used.
  void check_member();

  /// The answer to a request. If a member does not answer, or has no quorum,
  /// the next one is asked. Throws std::runtime_error.
  Json call(const std::string& path, const Json& request);

  /// Gives each answer of a stream, until that ends, as when its member does.
  void stream(
      const std::string& path,
      const Json& request,
      const std::function<void(const Json&)>& take);

 private:
  struct Answer {
    bool is_complete = false; // else `text` says why
    long status = 0;
    std::string text;
  };
  using Take = std::function<void(const std::string&)>;

  Answer perform(
      const std::string& path,
      const std::string& body,
      const Take& take,
      std::chrono::milliseconds timeout);
  Answer ask(const std::string& path, const std::string& body);
  static std::string reason_in(const Answer& answer);
  void authenticate();
  void next_member();

  const EtcdAccess access_;
  const std::vector<SocketAddress> members_;
  const std::chrono::milliseconds patience_;
  // For one member's answer: others shall be asked in time, too.
  const std::chrono::milliseconds call_time_;
  size_t member_ = 0; // that is asked
  std::string token_;
  void* handle_; // curl's
};

/// Keys and values are in this form.
std::string to_base64(const std::string& bytes);
std::string from_base64(const std::string& text);

} // namespace ddp
