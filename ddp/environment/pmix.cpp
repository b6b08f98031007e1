#include <ddp/environment/pmix.h>

#include <common/poll_until.h>
#include <common/random_name.h>
#include <ddp/internal/check.h>

#include <dlfcn.h>
#include <pmix.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <vector>

namespace ddp::detail {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kPollInterval(5);

/// The functions of libpmix that are used.
struct Functions {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Get) get = nullptr;
  decltype(&PMIx_Fence_nb) fence = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;
};

/// This process's connection to its server.
struct Connection {
  Functions functions;
  pmix_proc_t self{};
  PmixJob job;
  /// The reason if there is no connection, otherwise empty.
  std::string reason;
};

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  DDP_CHECK(function, "libpmix.so.2 has no {}", name);
}

Functions load() {
  void* library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
  DDP_CHECK(library, dlerror());
  Functions functions;
  find(library, "PMIx_Init", functions.init);
  find(library, "PMIx_Finalize", functions.finalize);
  find(library, "PMIx_Put", functions.put);
  find(library, "PMIx_Commit", functions.commit);
  find(library, "PMIx_Get", functions.get);
  find(library, "PMIx_Fence_nb", functions.fence);
  find(library, "PMIx_Error_string", functions.error_string);
  return functions;
}

/// The server's number for `key` of a rank, or of its job.
std::optional<int64_t> number(
    const Connection& connection,
    pmix_rank_t rank,
    const char* key) {
  pmix_proc_t about = connection.self;
  about.rank = rank;
  pmix_value_t* value = nullptr;
  if (connection.functions.get(&about, key, nullptr, 0, &value) !=
      PMIX_SUCCESS) {
    return std::nullopt;
  }
  const int64_t result =
      value->type == PMIX_UINT16 ? value->data.uint16 : value->data.uint32;
  std::free(value);
  return result;
}

PmixJob ask_for_job(const Connection& connection) {
  const auto self = connection.self.rank;
  PmixJob job;
  job.rank = self;
  job.size = number(connection, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
  job.local_rank = number(connection, self, PMIX_LOCAL_RANK);
  job.local_size = number(connection, PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE);
  return job;
}

// Open MPI 4.1 uses the same library: MPI_Init and MPI_Finalize change the same
// count as these calls. Once the count is back at zero, MPI_Init fails
// ("getting local rank failed"), so the connection is kept until the process
// exits. Without PMIx_Finalize at the exit, mpirun calls the exit improper and
// ends the job.
Connection* connect() {
  static auto* connection = new Connection;
  try {
    DDP_CHECK(std::getenv("PMIX_NAMESPACE"), "PMIX_NAMESPACE is not set");
    connection->functions = load();
    const auto status =
        connection->functions.init(&connection->self, nullptr, 0);
    DDP_CHECK(
        status == PMIX_SUCCESS, connection->functions.error_string(status));
    static const auto owner = getpid();
    std::atexit([] {
      if (getpid() == owner) { // not a forked child
        connection->functions.finalize(nullptr, 0);
      }
    });
    connection->job = ask_for_job(*connection);
  } catch (const c10::Error& error) {
    connection->reason = error.what_without_backtrace();
  }
  return connection;
}

Connection& connection() {
  static Connection* instance = connect();
  return *instance;
}

void check(pmix_status_t status, const std::string& operation) {
  DDP_CHECK_WITH(
      DistNetworkError,
      status == PMIX_SUCCESS,
      "{} failed: {}",
      operation,
      connection().functions.error_string(status));
}

pmix_info_t flag(const char* key) {
  pmix_info_t info{};
  std::strncpy(info.key, key, PMIX_MAX_KEYLEN);
  info.value.type = PMIX_BOOL;
  info.value.data.flag = true;
  return info;
}

void put(const std::string& key, const std::string& text) {
  const auto& functions = connection().functions;
  std::string copy = text;
  pmix_value_t value{};
  value.type = PMIX_STRING;
  value.data.string = copy.data();
  check(functions.put(PMIX_GLOBAL, key.c_str(), &value), "PMIx_Put");
  check(functions.commit(), "PMIx_Commit");
}

/// The text that a rank has put, if this host's server has it, otherwise empty.
std::string get(int64_t rank, const std::string& key) {
  const auto& pmix = connection();
  pmix_proc_t source = pmix.self;
  source.rank = static_cast<pmix_rank_t>(rank);
  const auto known = flag(PMIX_IMMEDIATE);
  pmix_value_t* value = nullptr;
  const auto status =
      pmix.functions.get(&source, key.c_str(), &known, 1, &value);
  if (status != PMIX_SUCCESS) {
    return "";
  }
  const std::string text = value->type == PMIX_STRING ? value->data.string : "";
  if (value->type == PMIX_STRING) {
    std::free(value->data.string);
  }
  std::free(value);
  return text;
}

[[noreturn]] void fail(const std::string& reason, milliseconds timeout) {
  DDP_THROW(
      DistNetworkError,
      "rank {}: the wait for all ranks over PMIx, with a timeout of {} s, "
      "failed (were all started, and do all form a group?): {}",
      connection().job.rank,
      timeout.count() / 1000.0,
      reason);
}

using Answer = std::promise<pmix_status_t>;

/// Receives the answer to a request, maybe after the wait has ended.
void arrive(pmix_status_t status, void* answer) {
  const std::unique_ptr<Answer> owned(static_cast<Answer*>(answer));
  owned->set_value(status);
}

/// Starts a fence of all ranks, which also distributes rank 0's values, and
/// waits for it.
pmix_status_t fence_until(Clock::time_point deadline) {
  const auto collect = flag(PMIX_COLLECT_DATA);
  auto answer = std::make_unique<Answer>();
  auto result = answer->get_future();
  const auto status = connection().functions.fence(
      nullptr, 0, &collect, 1, arrive, answer.get());
  if (status != PMIX_SUCCESS) {
    return status;
  }
  static_cast<void>(answer.release()); // `arrive` deletes it
  return result.wait_until(deadline) == std::future_status::ready
      ? result.get()
      : PMIX_ERR_TIMEOUT;
}

/// Waits for all ranks. If a rank is still in the previous program of the same
/// mpirun, its end breaks the others' fence, and they start another fence.
void fence(Clock::time_point deadline, milliseconds timeout) {
  auto status = PMIX_ERR_PARTIAL_SUCCESS;
  while (status == PMIX_ERR_PARTIAL_SUCCESS && Clock::now() < deadline) {
    status = fence_until(deadline);
  }
  if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED) {
    fail(connection().functions.error_string(status), timeout);
  }
}

/// For ranks on several hosts, which get each other's values only by fences.
std::string broadcast_by_fences(const std::string& text, milliseconds timeout) {
  static int broadcasts = 0;
  const auto deadline = Clock::now() + timeout;
  const auto key = "ddp.text." + std::to_string(broadcasts++);
  // The last rank that leaves a program removes the values that the ranks of
  // the next program have put until then.
  fence(deadline, timeout);
  const bool root = connection().job.rank == 0;
  if (root) {
    put(key, text);
  }
  fence(deadline, timeout);
  const auto received = root ? text : get(0, key);
  if (received.empty()) {
    fail("the server does not have rank 0's value", timeout);
  }
  return received;
}

/// For ranks on one host, whose server has each value immediately. A fence may
/// end too early: if a rank of the previous program of the same mpirun leaves
/// right after the answer to PMIx_Finalize, PMIx 4.2 can treat this rank as
/// lost, and then counts one rank less. Therefore rank 0 puts a new name, all
/// others answer with their names, and rank 0's text lists these names.
class LocalBroadcast {
 public:
  explicit LocalBroadcast(milliseconds timeout) : timeout_(timeout) {}

  std::string send(const std::string& text) {
    std::vector<std::string> names{own_};
    const auto size = static_cast<size_t>(*connection().job.size);
    const bool all_answer = poll_for(timeout_, kPollInterval, [&] {
      say("ddp.call", own_);
      for (auto rank = names.size(); rank < size; ++rank) {
        const auto answer = heard(static_cast<int64_t>(rank), "ddp.answer");
        if (!answer.is_object() || answer.at("call") != own_) {
          return false;
        }
        names.push_back(answer.at("name"));
      }
      return true;
    });
    if (!all_answer) {
      fail(
          "rank " + std::to_string(names.size()) + " has not arrived",
          timeout_);
    }
    put("ddp.text", json{{"names", names}, {"text", text}}.dump());
    return text;
  }

  std::string receive() {
    const auto own_rank = static_cast<size_t>(connection().job.rank);
    json text;
    const bool received = poll_for(timeout_, kPollInterval, [&] {
      say("ddp.answer",
          json{{"call", get(0, "ddp.call")}, {"name", own_}}.dump());
      text = heard(0, "ddp.text");
      return text.is_object() && text.at("names").at(own_rank) == own_;
    });
    if (!received) {
      fail("rank 0 has not connected all ranks", timeout_);
    }
    return text.at("text");
  }

 private:
  static json heard(int64_t rank, const std::string& key) {
    return json::parse(get(rank, key), nullptr, /*allow_exceptions=*/false);
  }

  /// Puts a new text immediately, and repeats it from time to time: the last
  /// rank that leaves the previous program removes earlier values.
  void say(const std::string& key, const std::string& text) {
    if (text != said_ || Clock::now() >= again_) {
      put(key, text);
      said_ = text;
      again_ = Clock::now() + 20 * kPollInterval;
    }
  }

  const milliseconds timeout_;
  const std::string own_ = random_name();
  std::string said_;
  Clock::time_point again_;
};

} // namespace

std::optional<PmixJob> pmix_job() {
  const auto& pmix = connection();
  return pmix.reason.empty() ? std::optional<PmixJob>(pmix.job) : std::nullopt;
}

std::string pmix_unavailable() {
  return connection().reason;
}

std::string pmix_broadcast(const std::string& text, milliseconds timeout) {
  const auto& job = connection().job;
  if (!job.size || job.local_size != job.size) {
    return broadcast_by_fences(text, timeout);
  }
  LocalBroadcast broadcast(timeout);
  return job.rank == 0 ? broadcast.send(text) : broadcast.receive();
}

} // namespace ddp::detail
