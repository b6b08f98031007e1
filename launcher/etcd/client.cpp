#include <launcher/etcd/client.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <thread>

#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <resolv.h>
#include <sys/socket.h>

#include <common/bounded_json.h>
#include <launcher/rendezvous/log/log_helper.h>

namespace ddp {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Json = EtcdClient::Json;

constexpr milliseconds kLongestCall{5000};
constexpr milliseconds kPollInterval{100};
// HTTP status codes.
constexpr long kWell = 200;
constexpr long kUnauthorized = 401;
constexpr long kForbidden = 403;
constexpr long kUnavailable = 503;

/// Takes the parts of a body. Exceptions must not pass through libcurl.
struct Taker {
  const std::function<void(const std::string&)>& take;
  std::exception_ptr thrown;
};

size_t take_bytes(char* bytes, size_t, size_t count, void* to) noexcept {
  auto& taker = *static_cast<Taker*>(to);
  try {
    taker.take(std::string(bytes, count));
    return count;
  } catch (...) {
    taker.thrown = std::current_exception();
    return count + 1; // ends the transfer
  }
}

/// A connection is lost if its other end is silent for this time.
int limit_silence(void* time, curl_socket_t socket, curlsocktype) {
  const auto silence =
      static_cast<unsigned>(static_cast<const milliseconds*>(time)->count());
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof silence);
  return CURL_SOCKOPT_OK;
}

std::string first_line_of(const std::string& path) {
  const auto setting = "password_file '" + path + "' of --rdzv-conf";
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) {
    throw LogRejected(
        file.eof() ? setting + " is empty"
                   : "cannot read " + setting + ": " + std::strerror(errno));
  }
  return line;
}

/// Empty if the text is not an object, or nests too deep to be copied.
Json object_in(const std::string& text) {
  const auto object = parse_bounded_json(text);
  return object && object->is_object() ? *object : Json::object();
}

bool has_gateway(const std::string& version) {
  int major = 0;
  int minor = 0;
  std::sscanf(version.c_str(), "%d.%d", &major, &minor);
  return major > 3 || (major == 3 && minor >= 4);
}

} // namespace

EtcdClient::EtcdClient(const NodeOptions& nodes)
    : access_(nodes.etcd_access),
      members_(nodes.etcd),
      patience_(nodes.node_timeout),
      call_time_(std::min(patience_ / 4, kLongestCall)),
      handle_(curl_easy_init()) {}

EtcdClient::~EtcdClient() {
  curl_easy_cleanup(handle_);
}

EtcdClient::Answer EtcdClient::perform(
    const std::string& path,
    const std::string& body,
    const Take& take,
    milliseconds timeout) {
  const auto set = [this](auto option, auto value) {
    curl_easy_setopt(handle_, option, value);
  };
  char reason[CURL_ERROR_SIZE] = "";
  const auto& member = members_[member_];
  const auto address = (access_.is_encrypted() ? "https://" : "http://") +
      describe_endpoint(member.host, member.port) + path;
  const auto authorization = "Authorization: " + token_;
  curl_slist* headers = token_.empty()
      ? nullptr
      : curl_slist_append(nullptr, authorization.c_str());
  curl_easy_reset(handle_); // keeps connections
  set(CURLOPT_URL, address.c_str());
  set(CURLOPT_HTTPHEADER, headers);
  if (!body.empty()) {
    set(CURLOPT_POSTFIELDS, body.c_str());
    set(CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  }
  set(CURLOPT_WRITEFUNCTION, take_bytes);
  Taker taker{take, nullptr};
  set(CURLOPT_WRITEDATA, &taker);
  set(CURLOPT_ERRORBUFFER, reason);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_NOPROXY, "*");
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(call_time_.count()));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_TCP_KEEPIDLE, 1L);
  set(CURLOPT_TCP_KEEPINTVL, 1L);
  set(CURLOPT_SOCKOPTFUNCTION, limit_silence);
  set(CURLOPT_SOCKOPTDATA, &call_time_);
  if (!access_.cacert.empty()) {
    set(CURLOPT_CAINFO, access_.cacert.c_str());
  }
  if (!access_.cert.empty()) {
    set(CURLOPT_SSLCERT, access_.cert.c_str());
    set(CURLOPT_SSLKEY, access_.key.c_str());
  }
  Answer answer;
  const auto code = curl_easy_perform(handle_);
  curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &answer.status);
  curl_slist_free_all(headers);
  if (taker.thrown) {
    std::rethrow_exception(taker.thrown);
  }
  answer.is_complete = code == CURLE_OK;
  if (code == CURLE_SSL_CERTPROBLEM || code == CURLE_PEER_FAILED_VERIFICATION ||
      code == CURLE_SSL_CACERT_BADFILE) {
    throw LogRejected(
        std::string("the TLS certificate of the server or of this client was "
                    "rejected: ") +
        reason + "; see cert, key and cacert of --rdzv-conf");
  }
  if (code == CURLE_OPERATION_TIMEDOUT) {
    answer.text =
        "it does not answer; if the etcd cluster has lost quorum, start the "
        "members that are down";
  } else if (!answer.is_complete) {
    answer.text = *reason != '\0' ? reason : curl_easy_strerror(code);
  }
  return answer;
}

// The error message in an answer.
std::string EtcdClient::reason_in(const Answer& answer) {
  return answer.is_complete
      ? object_in(answer.text)
            .value("message", "HTTP " + std::to_string(answer.status))
      : answer.text;
}

// For an answer that is not a stream.
EtcdClient::Answer EtcdClient::ask(
    const std::string& path,
    const std::string& body) {
  std::string text;
  auto answer = perform(
      path, body, [&](const std::string& part) { text += part; }, call_time_);
  if (answer.is_complete) {
    answer.text = text;
  }
  return answer;
}

void EtcdClient::begin_with(const SocketAddress& member) {
  member_ = 0;
  while (members_[member_].host != member.host ||
         members_[member_].port != member.port) {
    ++member_;
  }
}

void EtcdClient::check_member() {
  const auto answer = ask("/version", "");
  if (!answer.is_complete) {
    throw std::runtime_error(answer.text);
  }
  const auto number = object_in(answer.text).value("etcdserver", "");
  if (number.empty()) {
    throw LogRejected(
        "it answers, but is not etcd; see --rdzv-endpoint (with TLS, cacert "
        "of --rdzv-conf)");
  }
  if (!has_gateway(number)) {
    throw LogRejected(
        "its etcd is version " + number + "; 3.4 or later is required");
  }
  const auto health = ask("/health", "");
  if (health.is_complete && health.status == kUnavailable) {
    throw std::runtime_error(
        "the etcd cluster has lost quorum: start the members that are down");
  }
  if (!access_.user.empty()) {
    authenticate();
  }
}

void EtcdClient::authenticate() {
  const Json request{
      {"name", access_.user},
      {"password", first_line_of(access_.password_file)}};
  const auto answer = ask("/v3/auth/authenticate", request.dump());
  if (!answer.is_complete || answer.status == kUnavailable) {
    throw std::runtime_error(reason_in(answer));
  }
  token_ = object_in(answer.text).value("token", "");
  if (token_.empty()) {
    throw LogRejected(
        "it rejects user " + access_.user + ": " + reason_in(answer) +
        "; see user and password_file of --rdzv-conf");
  }
}

void EtcdClient::next_member() {
  member_ = (member_ + 1) % members_.size();
}

Json EtcdClient::call(const std::string& path, const Json& request) {
  const auto deadline = Clock::now() + patience_;
  const auto body = request.dump();
  for (bool is_new_token = false;;) {
    const auto answer = ask(path, body);
    if (answer.is_complete && answer.status == kWell) {
      if (auto value = parse_bounded_json(answer.text)) {
        return *std::move(value);
      }
      throw std::runtime_error("its answer to " + path + " is not JSON");
    }
    const bool is_unauthenticated = answer.is_complete &&
        (answer.status == kUnauthorized || answer.status == kForbidden ||
         reason_in(answer).find("user name is empty") != std::string::npos);
    if (is_unauthenticated && !access_.user.empty() && !is_new_token) {
      authenticate(); // tokens expire
      is_new_token = true;
      continue;
    }
    if (is_unauthenticated) {
      throw LogRejected(
          "it does not permit the request: " + reason_in(answer) +
          "; see user and password_file of --rdzv-conf");
    }
    const bool may_pass = !answer.is_complete || answer.status == kUnavailable;
    if (!may_pass || Clock::now() >= deadline) {
      throw std::runtime_error(reason_in(answer));
    }
    next_member();
    std::this_thread::sleep_for(kPollInterval);
  }
}

void EtcdClient::stream(
    const std::string& path,
    const Json& request,
    const std::function<void(const Json&)>& take) {
  std::string waiting;
  const auto answer = perform(
      path,
      request.dump(),
      [&](const std::string& part) {
        waiting += part;
        for (size_t end; (end = waiting.find('\n')) != std::string::npos;) {
          const auto line = waiting.substr(0, end);
          waiting.erase(0, end + 1);
          take(parse_bounded_json(line).value_or(Json()));
        }
      },
      patience_ / 2);
  if (answer.status == kUnauthorized && !access_.user.empty()) {
    authenticate();
  }
  next_member();
}

std::string to_base64(const std::string& bytes) {
  std::string text(bytes.size() / 3 * 4 + 5, '\0'); // with a terminating NUL
  const auto* from = reinterpret_cast<const unsigned char*>(bytes.data());
  text.resize(
      static_cast<size_t>(b64_ntop(from, bytes.size(), &text[0], text.size())));
  return text;
}

// Empty if the text is not base64.
std::string from_base64(const std::string& text) {
  std::string bytes(text.size(), '\0');
  auto* to = reinterpret_cast<unsigned char*>(&bytes[0]);
  const int size = b64_pton(text.c_str(), to, bytes.size());
  bytes.resize(static_cast<size_t>(std::max(size, 0)));
  return bytes;
}

} // namespace ddp
