#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <launcher/rendezvous/node_options.h>
#include <launcher/sockets.h>

namespace ddp {

/// Calls to etcd's v3 API, as JSON over HTTP (etcd's gateway). Not thread-safe.
class EtcdClient {
 public:
  using Json = nlohmann::json;

  /// A call retries for --node-timeout if no member answers.
  explicit EtcdClient(const NodeOptions& nodes);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  /// Makes the next calls use this member first.
  void begin_with(const SocketAddress& member);

  /// Checks the current member. Throws std::runtime_error if the member does
  /// not answer, LogRejected if the member cannot be used.
  void check_member();

  /// Returns the answer to a request. If a member does not answer, or has no
  /// quorum, uses the next member. Throws std::runtime_error.
  Json call(const std::string& path, const Json& request);

  /// Passes each answer of a stream to `take`, null for one that is not JSON,
  /// until the stream ends, for example because the member ends. Ends after
  /// half of --node-timeout: a member that is cut off may send nothing.
  void stream(
      const std::string& path,
      const Json& request,
      const std::function<void(const Json&)>& take);

 private:
  struct Answer {
    bool is_complete = false; // if false, `text` is the reason
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
  // The time limit for one member's answer, which leaves time for other
  // members.
  const std::chrono::milliseconds call_time_;
  size_t member_ = 0; // the current member
  std::string token_;
  void* handle_; // curl's handle
};

/// The encoding of keys and values.
std::string to_base64(const std::string& bytes);
std::string from_base64(const std::string& text);

} // namespace ddp
