#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <launcher/etcd/client.h>
#include <launcher/rendezvous/log/log_helper.h>

namespace ddp {

/// A log in an etcd, under `ddp/NAME/`. Transactions put entries into free
/// places, a watch brings them; a member lives as long as its lease. All is
/// attached to a lease of the job's, which the members keep alive: what is left
/// of a job whose nodes have all died expires.
class EtcdLog : public LogEngine {
 public:
  /// Without its agent's beats a member lives as long as --node-timeout, in
  /// which no member of the etcd need answer either.
  explicit EtcdLog(const HelperOptions& options);

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
  void leave() override;

 private:
  using Json = EtcdClient::Json;
  using Clock = std::chrono::steady_clock;

  std::string key(const std::string& name) const;
  std::string name_of(const Json& pair) const;
  Json prefix(const std::string& name) const;
  std::string put_if_absent(
      const std::string& name,
      const std::string& value,
      const std::string& lease);
  std::string grant(std::chrono::milliseconds time);
  void revoke(const std::string& lease);
  bool keep_alive(const std::string& lease);
  void live(const std::string& member);
  int64_t read_all(const std::function<void(const std::string&)>& take);
  void handle(
      const Json& event,
      const std::function<void(const std::string&)>& take);

  const std::string name_;
  const std::chrono::milliseconds silence_;
  EtcdClient reader_;
  EtcdClient writer_;
  std::string job_lease_;
  std::string own_lease_;
  Clock::time_point job_kept_;
  int64_t beats_ = 0;
  uint64_t read_ = 0; // entries so far
  std::mutex mutex_;
  std::set<std::string> living_;
  std::map<std::string, int64_t> counts_;
};

} // namespace ddp
