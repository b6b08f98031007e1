#include <ddp/failure/failure_store.h>

#include <common/host_name.h>
#include <common/poll_until.h>
#include <common/text.h>
#include <ddp/failure/failure_store_connection.h>
#include <ddp/support/no_dns_guard.h>

#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <numeric>

namespace ddp::detail {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Failure, scope, rank, host, text, kind)

namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr const char* kList = "failures";
constexpr const char* kWarning = "notice";
// For requests that are made once: to connect, and to report this rank's own
// reason, which other ranks get only from this report.
constexpr auto kReasonTime = std::chrono::seconds(5);
constexpr auto kAckTime = std::chrono::seconds(2);
constexpr auto kAckInterval = std::chrono::milliseconds(10);
// Every rank reads the whole list.
constexpr size_t kMaxText = 4096;

/// The name or address of the store's host, or "" if it has none.
std::string host_of(c10::intrusive_ptr<c10d::Store> store) {
  if (auto* const prefix = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    store = prefix->getUnderlyingNonPrefixStore();
  }
  const auto* tcp = dynamic_cast<c10d::TCPStore*>(store.get());
  return tcp ? tcp->getHost() : "";
}

std::string get_or(
    c10d::Store& store,
    const std::string& key,
    const std::string& otherwise) {
  return store.check({key}) ? store.get_to_str(key) : otherwise;
}

std::string seen(size_t line, int64_t rank) {
  return "seen/" + std::to_string(line) + "/" + std::to_string(rank);
}

std::string waiting(const std::string& scope, int64_t rank) {
  return "waiting" + scope + "/rank/" + std::to_string(rank);
}

std::string awaited(const std::string& rank) {
  return "awaited/rank/" + rank;
}

std::string awaited(int64_t rank) {
  return awaited(std::to_string(rank));
}

std::string to_line(Failure failure) {
  failure.text = failure.text.substr(0, kMaxText);
  // Text may not be UTF-8; truncated text may end within a character.
  return json(failure).dump(-1, ' ', false, json::error_handler_t::replace) +
      "\n";
}

/// Nothing if `to_line` did not make the line.
std::optional<Failure> to_failure(const std::string& line) {
  try {
    return json::parse(line).get<Failure>();
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

/// One entry for each line; nothing if `to_line` did not make the line.
std::vector<std::optional<Failure>> read_list(c10d::Store& store) {
  std::vector<std::optional<Failure>> lines;
  if (store.check({kList})) {
    for (const auto& line : split_lines(store.get_to_str(kList))) {
      lines.push_back(to_failure(line));
    }
  }
  return lines;
}

} // namespace

bool concerns(const std::string& failed, const std::string& scope) {
  return scope == failed || scope.rfind(failed + "/", 0) == 0;
}

std::shared_ptr<FailureStore> FailureStore::open(
    const c10::intrusive_ptr<c10d::Store>& store,
    int64_t rank,
    int64_t size,
    bool hosts_store) {
  if (!store || size == 1 || !store->hasExtendedApi()) {
    return nullptr;
  }
  try {
    auto connection = std::make_shared<Connection>();
    const auto own = answered_within(kReasonTime, [store] {
      store->check({kList}); // connecting to an ended store takes its timeout
      const NoDnsGuard no_dns_guard(host_of(store));
      return store->clone();
    });
    connection->store =
        c10::make_intrusive<c10d::PrefixStore>("failure_store", own);
    std::vector<int64_t> members(size);
    std::iota(members.begin(), members.end(), 0);
    return std::shared_ptr<FailureStore>(new FailureStore(
        std::move(connection), rank, size, hosts_store, std::move(members)));
  } catch (const std::exception&) {
    return nullptr; // the store has no second connection
  }
}

FailureStore::FailureStore(
    std::shared_ptr<Connection> connection,
    int64_t root_rank,
    int64_t root_size,
    bool hosts_store,
    std::vector<int64_t> members)
    : connection_(std::move(connection)),
      root_rank_(root_rank),
      root_size_(root_size),
      hosts_store_(hosts_store),
      members_(std::move(members)) {}

bool FailureStore::has_lost_rank_0() const {
  return connection_->lost &&
      std::count(members_.begin(), members_.end(), 0) > 0;
}

std::shared_ptr<FailureStore> FailureStore::of(
    const std::vector<int64_t>& ranks) const {
  std::vector<int64_t> members;
  for (const auto rank : ranks) {
    members.push_back(members_.at(rank));
  }
  return std::shared_ptr<FailureStore>(new FailureStore(
      connection_, root_rank_, root_size_, hosts_store_, std::move(members)));
}

/// Converts a failure, which names the rank in the root group.
Failure FailureStore::in_this_group(Failure failure) const {
  const auto found = std::find(members_.begin(), members_.end(), failure.rank);
  failure.size = root_size_;
  if (found != members_.end()) {
    failure.rank = std::distance(members_.begin(), found);
    failure.size = static_cast<int64_t>(members_.size());
  }
  return failure;
}

void FailureStore::report(
    const std::string& scope,
    const std::string& text,
    Failure::Kind kind) {
  const auto line = to_line({scope, root_rank_, 1, host_name(), text, kind});
  const auto done = Connection::ask(
      connection_,
      [line](c10d::Store& store) {
        store.append(kList, {line.begin(), line.end()});
        return store.check({kList}); // after the answer, the list has the line
      },
      kReasonTime);
  if (done && hosts_store_) {
    const bool is_reason = kind != Failure::Kind::kConsequence;
    drain(scope, lines(scope), is_reason ? kReasonTime : kAckTime);
  }
}

std::string FailureStore::report_consequence(
    const std::string& scope,
    const std::string& text,
    size_t since) {
  report(scope, text, Failure::Kind::kConsequence);
  const auto first = Connection::ask(
      connection_, [scope, since](c10d::Store& store) -> std::string {
        const auto list = read_list(store);
        for (size_t number = since; number < list.size(); ++number) {
          const auto& failure = list[number];
          if (failure && failure->kind == Failure::Kind::kConsequence &&
              (concerns(failure->scope, scope) ||
               concerns(scope, failure->scope))) {
            return failure->text;
          }
        }
        return "";
      });
  return first.value_or("").empty() ? text : *first;
}

std::vector<Failure> FailureStore::read(const std::string& scope) {
  const auto found = lines(scope);
  if (hosts_store_) {
    drain(scope, found, kAckTime);
  }
  std::vector<Failure> failures;
  for (const auto& line : found) {
    if (line.failure.rank != root_rank_) {
      failures.push_back(in_this_group(line.failure));
    }
  }
  return failures;
}

/// Returns the failures that concern `scope`, and acknowledges them for this
/// rank.
std::vector<FailureStore::Line> FailureStore::lines(const std::string& scope) {
  const auto found = Connection::ask(
      connection_, [scope, rank = root_rank_](c10d::Store& store) {
        std::vector<Line> result;
        const auto list = read_list(store);
        for (size_t number = 0; number < list.size(); ++number) {
          const auto& failure = list[number];
          if (failure && concerns(failure->scope, scope)) {
            store.set(seen(number, rank), std::vector<uint8_t>{});
            result.push_back({number, *failure});
          }
        }
        return result;
      });
  return found.value_or(std::vector<Line>());
}

/// The keys that acknowledge `lines`, of all other ranks except those that have
/// failed themselves.
std::vector<std::string> FailureStore::acks(
    const std::vector<Line>& lines) const {
  const auto has_failed = [&](int64_t member) {
    return std::any_of(lines.begin(), lines.end(), [&](const Line& line) {
      return line.failure.rank == member;
    });
  };
  std::vector<std::string> keys;
  for (const auto member : members_) {
    if (member == root_rank_ || has_failed(member)) {
      continue;
    }
    for (const auto& line : lines) {
      if (line.number >= told_) {
        keys.push_back(seen(line.number, member));
      }
    }
  }
  return keys;
}

/// Gives the other ranks time to read what this rank has read: this rank may
/// end next, and the store with it.
void FailureStore::drain(
    const std::string& scope,
    std::vector<Line> found,
    std::chrono::seconds time) {
  poll_for(time, kAckInterval, [&] {
    const auto keys = acks(found);
    if (keys.empty()) {
      return true;
    }
    const bool all = Connection::ask(connection_, [keys](c10d::Store& store) {
                       return store.check(keys);
                     }).value_or(connection_->lost);
    if (!all) {
      found = lines(scope); // another rank may fail meanwhile
    }
    return all;
  });
  if (!found.empty()) {
    told_ = found.back().number + 1;
  }
}

std::optional<WaitState> FailureStore::mark_waiting(
    const std::string& scope,
    int64_t number,
    const std::string& call) {
  return Connection::ask(
      connection_,
      [scope, number, call, rank = root_rank_](c10d::Store& store) {
        const auto id = std::to_string(Clock::now().time_since_epoch().count());
        store.set(awaited(rank), id + " " + call);
        store.set(waiting(scope, rank), std::to_string(number) + " " + call);
        return WaitState{read_list(store).size(), id};
      });
}

void FailureStore::leave() {
  Connection::ask(connection_, [rank = root_rank_](c10d::Store& store) {
    store.set(awaited(rank), std::vector<uint8_t>{});
    return true;
  });
}

std::vector<WaitStatus> FailureStore::wait_status(
    const std::string& scope,
    int64_t number) {
  const auto found = Connection::ask(
      connection_, [scope, number, members = members_](c10d::Store& store) {
        std::vector<WaitStatus> ranks;
        for (const auto member : members) {
          const auto here = get_or(store, waiting(scope, member), "-1");
          const auto last = get_or(store, awaited(member), "");
          WaitStatus where;
          where.came = std::stoll(here) >= number;
          // The last wait may be that of another thread.
          const auto& call = where.came && !last.empty() ? here : last;
          where.call = call.substr(call.find(' ') + 1);
          ranks.push_back(std::move(where));
        }
        return ranks;
      });
  return found.value_or(std::vector<WaitStatus>());
}

bool FailureStore::may_report_wait(const WaitState& state) {
  // The rank and the wait: "RANK ID".
  const auto own = std::to_string(root_rank_) + " " + state.id;
  const auto may = Connection::ask(connection_, [own](c10d::Store& store) {
    const auto last = get_or(store, kWarning, "");
    const auto space = std::min(last.find(' '), last.size());
    const auto wait = get_or(store, awaited(last.substr(0, space)), "");
    const bool goes_on = !last.empty() &&
        wait.substr(0, wait.find(' ')) == last.substr(space + 1);
    return !goes_on && store.compareSet(kWarning, last, own) == own;
  });
  return may.value_or(false);
}

} // namespace ddp::detail
