// The program of ddprun that talks to an etcd: a separate process, so that
// ddprun, which has secrets and starts in milliseconds, links no libcurl.
//
// ddprun-etcd --rdzv-member OPTIONS
//   carries an agent's part of the shared log (see HelperOptions).
//
// It runs until it is killed or its agent dies.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <curl/curl.h>

#include <launcher/etcd/client.h>
#include <launcher/rendezvous/authentication.h>
#include <launcher/rendezvous/log/entry.h>
#include <launcher/rendezvous/log/log_helper.h>

namespace ddp {
namespace {

using std::chrono::milliseconds;

constexpr char kNonce[] = "nonce";
constexpr char kEntry[] = "log/"; // and a random name; etcd orders them
constexpr char kMember[] = "members/"; // and its name
constexpr size_t kNonceBytes = 16;
constexpr milliseconds kJobTime{60000};
constexpr milliseconds kExpiryTime{10000};
constexpr milliseconds kPause{100};

bool is_in(const std::string& folder, const std::string& name) {
  return name.rfind(folder, 0) == 0;
}

int64_t number_in(const EtcdClient::Json& object, const char* name) {
  constexpr int64_t most = int64_t{1} << 62; // leaves room to count on
  return std::min<int64_t>(
      std::stoll(object.at(name).get<std::string>()), most);
}

/// A log in an etcd, under `ddp/NAME/`. Entries have the order of the revisions
/// that created them, and arrive by a watch. A member is alive as long as its
/// lease. All other keys are attached to the job's lease, which the members
/// keep alive, so the keys of a job expire after all its nodes have died.
class EtcdLog : public LogEngine {
 public:
  /// Without its agent's beats, a member is alive for --node-timeout. For this
  /// time, the etcd's members need not answer either.
  explicit EtcdLog(const HelperOptions& options);

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

  const std::string folder_;
  const std::chrono::milliseconds silence_;
  EtcdClient reader_;
  EtcdClient writer_;
  std::string job_lease_;
  std::string own_lease_;
  Clock::time_point job_kept_;
  int64_t beats_ = 0;
  int64_t read_ = 0; // the last entry's revision
  std::mutex mutex_;
  std::set<std::string> living_;
  std::map<std::string, int64_t> counts_;
};

EtcdLog::EtcdLog(const HelperOptions& options)
    : folder_("ddp/" + options.job + "/"),
      silence_(options.nodes.node_timeout),
      reader_(options.nodes),
      writer_(options.nodes) {}

std::string EtcdLog::key(const std::string& name) const {
  return to_base64(folder_ + name);
}

// The key without the job's prefix.
std::string EtcdLog::name_of(const Json& pair) const {
  return from_base64(pair.at("key")).substr(folder_.size());
}

EtcdLog::Json EtcdLog::prefix(const std::string& name) const {
  std::string end = folder_ + name;
  ++end.back();
  return {{"key", key(name)}, {"range_end", to_base64(end)}};
}

SocketAddress EtcdLog::serve(int) {
  throw std::logic_error("EtcdLog does not serve a log: nodes connect to etcd");
}

void EtcdLog::connect(const SocketAddress& endpoint, const std::string&) {
  writer_.begin_with(endpoint);
  writer_.check_member();
  reader_.begin_with(endpoint);
}

std::string EtcdLog::grant(milliseconds time) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(time).count();
  return writer_.call("/v3/lease/grant", {{"TTL", std::to_string(seconds)}})
      .at("ID");
}

// A call whose answer was lost may already have revoked the lease.
void EtcdLog::revoke(const std::string& lease) {
  try {
    writer_.call("/v3/lease/revoke", {{"ID", lease}});
  } catch (const std::runtime_error& error) {
    if (std::string(error.what()).find("lease not found") ==
        std::string::npos) {
      throw;
    }
  }
}

bool EtcdLog::keep_alive(const std::string& lease) {
  const auto answer = writer_.call("/v3/lease/keepalive", {{"ID", lease}});
  return answer.at("result").contains("TTL");
}

// Returns the key's value afterwards: this value, or an earlier one.
std::string EtcdLog::put_if_absent(
    const std::string& name,
    const std::string& value,
    const std::string& lease) {
  const Json absent{
      {"key", key(name)},
      {"target", "CREATE"},
      {"result", "EQUAL"},
      {"create_revision", "0"}};
  const Json put{
      {"key", key(name)}, {"value", to_base64(value)}, {"lease", lease}};
  const Json get{{"key", key(name)}};
  const auto answer = writer_.call(
      "/v3/kv/txn",
      {{"compare", {absent}},
       {"success", Json::array({{{"request_put", put}}})},
       {"failure", Json::array({{{"request_range", get}}})}});
  if (answer.value("succeeded", false)) {
    return value;
  }
  const auto& range = answer.at("responses").at(0).at("response_range");
  return from_base64(range.at("kvs").at(0).value("value", ""));
}

// The first member to arrive creates the nonce.
std::string EtcdLog::nonce() {
  const auto lease = grant(kJobTime);
  const auto own = random_hex(kNonceBytes) + " " + lease;
  const auto begin = Clock::now();
  for (;;) {
    std::istringstream words(put_if_absent(kNonce, own, lease));
    std::string nonce;
    words >> nonce >> job_lease_;
    if (nonce.size() != 2 * kNonceBytes || job_lease_.empty()) {
      throw LogRejected(folder_ + " does not belong to ddprun");
    }
    job_kept_ = Clock::now();
    if (job_lease_ == lease) {
      return nonce;
    }
    if (keep_alive(job_lease_)) {
      revoke(lease);
      return nonce;
    }
    // The nodes of an earlier job may all have died kJobTime ago. For a moment,
    // etcd still shows the keys of a lease that has expired.
    if (Clock::now() > begin + kExpiryTime) {
      throw std::runtime_error("the keys of an earlier job are expiring there");
    }
    std::this_thread::sleep_for(kPause);
  }
}

int64_t EtcdLog::read_all(const std::function<void(const std::string&)>& take) {
  auto all = prefix("");
  all["sort_order"] = "ASCEND";
  all["sort_target"] = "CREATE";
  const auto answer = reader_.call("/v3/kv/range", all);
  const auto pairs = answer.value("kvs", Json::array());
  std::set<std::string> living;
  for (const auto& each : pairs) {
    const auto name = name_of(each);
    if (is_in(kMember, name)) {
      living.insert(name.substr(std::string(kMember).size()));
    }
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    living_ = living;
  }
  for (const auto& each : pairs) {
    handle({{"kv", each}}, take);
  }
  return number_in(answer.at("header"), "revision");
}

void EtcdLog::handle(
    const Json& event,
    const std::function<void(const std::string&)>& take) {
  const bool is_deleted = event.value("type", "PUT") == "DELETE";
  const auto& pair = event.at("kv");
  const auto name = name_of(pair);
  if (is_in(kMember, name)) {
    const auto member = name.substr(std::string(kMember).size());
    const std::lock_guard<std::mutex> lock(mutex_);
    is_deleted ? living_.erase(member) : living_.insert(member).second;
  } else if (is_in(kEntry, name) && !is_deleted) {
    const auto revision = number_in(pair, "create_revision");
    if (revision > read_) {
      read_ = revision;
      take(from_base64(pair.value("value", "")));
    }
  }
}

// What a watch has missed, because it ended early or was refused, is read
// again.
void EtcdLog::read(const std::function<void(const std::string&)>& take) {
  for (;; std::this_thread::sleep_for(kPause)) {
    auto watched = prefix("");
    watched["start_revision"] = std::to_string(read_all(take) + 1);
    reader_.stream(
        "/v3/watch", {{"create_request", watched}}, [&](const Json& answer) {
          try {
            const auto& result = answer.at("result");
            for (const auto& event : result.value("events", Json::array())) {
              handle(event, take);
            }
          } catch (const std::exception&) { // the next read gets it
          }
        });
  }
}

// A call whose answer was lost is repeated, and finds its own value.
void EtcdLog::append(const std::string& entry) {
  put_if_absent(kEntry + random_hex(kNonceBytes), entry, job_lease_);
}

// Other members notice immediately if the lease has expired.
void EtcdLog::live(const std::string& member) {
  if (own_lease_.empty() || !keep_alive(own_lease_)) {
    own_lease_ = grant(silence_);
    writer_.call(
        "/v3/kv/put", {{"key", key(kMember + member)}, {"lease", own_lease_}});
  }
}

std::vector<int64_t> EtcdLog::beat(
    const std::string& member,
    int64_t count,
    const std::vector<std::string>& others) {
  if (count > beats_) {
    live(member);
  }
  beats_ = count;
  if (Clock::now() > job_kept_ + kJobTime / 4) {
    if (!keep_alive(job_lease_)) {
      throw std::runtime_error("the job's keys there have expired");
    }
    job_kept_ = Clock::now();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int64_t> counts;
  for (const std::string& each : others) {
    // A member gets its lease before it writes the entry that names it.
    counts.push_back(living_.count(each) != 0 ? ++counts_[each] : kDead);
  }
  return counts;
}

void EtcdLog::leave() {
  if (!own_lease_.empty()) {
    revoke(own_lease_);
  }
  auto members = prefix(kMember);
  members["count_only"] = true;
  const auto answer = writer_.call("/v3/kv/range", members);
  if (answer.value("count", "0") == "0") {
    revoke(job_lease_);
  }
}

} // namespace
} // namespace ddp

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("ddprun-etcd is started by ddprun\n", stderr);
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN); // a member that ends must not end this
  curl_global_init(CURL_GLOBAL_DEFAULT);
  const auto options = ddp::helper_options(argv[2]);
  ddp::EtcdLog log(options);
  ddp::run_log_helper(log, options);
}
