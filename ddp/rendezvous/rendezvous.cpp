#include <ddp/rendezvous/rendezvous.h>

#include <common/host_name.h>
#include <common/poll_until.h>
#include <common/random_name.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/agreement/rank_report.h>
#include <ddp/process_group/wait_warning.h>
#include <ddp/rendezvous/reception.h>
#include <ddp/rendezvous/store_connection.h>
#include <ddp/support/detached_task.h>
#include <ddp/support/error_text.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <atomic>
#include <optional>

namespace ddp {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Two store requests cost about 30 us each; this keeps rank 0's polling below
// a percent of a core while it waits.
constexpr auto kLongestBackoff = std::chrono::milliseconds(10);
// The time for others to arrive and receive the report of a fault.
constexpr auto kFaultTime = std::chrono::seconds(5);
// The time for ranks that may not exist: only the larger of two worlds has
// them, or their processes have the rank of another process.
constexpr auto kDoubtfulTime = std::chrono::milliseconds(500);
constexpr int64_t kMostAwaited = 1024;
// The time for rank 0's answer, before a rank looks for a formed group.
constexpr auto kAnswerTime = std::chrono::milliseconds(500);
// The interval in which rank 0 looks for other processes with the rank of one
// that has arrived; longer for many ranks, to limit the load on the store.
constexpr auto kLookInterval = std::chrono::milliseconds(250);
constexpr auto kLookIntervalPerRank = std::chrono::milliseconds(1);
// The time for the end of this process's last store, which a thread may hold.
constexpr auto kPortTime = std::chrono::seconds(5);
constexpr auto kPortInterval = std::chrono::milliseconds(250);

/// One rank's part in the rendezvous; see the header for the protocol.
class RendezvousAttempt {
 public:
  RendezvousAttempt(
      const LaunchEnvironment& environment,
      const std::string& address,
      std::chrono::milliseconds timeout,
      std::chrono::milliseconds wait_notice)
      : rank_(environment.rank),
        size_(environment.world_size),
        timeout_(timeout),
        wait_notice_(wait_notice),
        deadline_(Clock::now() + timeout),
        where_(
            environment.master_addr + ":" +
            std::to_string(environment.master_port)),
        who_(c10::str("rank ", rank_, " of ", size_)),
        serves_(rank_ == 0 && !environment.launcher_hosts_store) {
    if (rank_ > 0) {
      await_rank_0_.emplace(
          wait_notice,
          who_,
          "init_process_group: rank 0 has not joined the rendezvous at " +
              where_);
    }
    lobby_ = detail::connect_to_store(environment, address, timeout);
  }

  RendezvousResult host(const RankInfo& self) {
    enter(detail::random_name());
    lobby_->set(detail::hello_key(0), attempt_);
    detail::Reception reception(lobby_, room_, attempt_, size_);
    std::vector<json> members(size_ + 1);
    members[0] = json_of(self);
    const auto start = Clock::now();
    const auto look_interval = std::max<std::chrono::milliseconds>(
        kLookInterval, size_ * kLookIntervalPerRank);
    auto next_look = start + look_interval;
    detail::GrowingBackoff pause(kLongestBackoff);
    for (bool told = false; reception.count() < size_;) {
      for (int64_t r = 1; r <= size_; ++r) {
        if (reception.comes(r)) {
          members[r] = parse_message(room_->get_to_str(detail::joined_key(r)));
          check_place(r, to_rank_info(members[r]), reception);
          pause.reset();
        }
      }
      const auto now = Clock::now();
      if (now > next_look) {
        reception.answer_others();
        next_look = now + look_interval;
      }
      if (const auto twice = rank_that_came_twice(); !twice.empty()) {
        reject(came_twice(twice), reception, 0, size_);
      }
      if (now > deadline_) {
        dismiss(reception);
      }
      if (!told && now - start > wait_notice_) {
        tell_of(reception.absent(size_));
        told = true;
      }
      std::this_thread::sleep_for(pause.next());
    }
    members.pop_back();
    reception.say({{"members", members}});
    reception.await_readers();
    auto formed_group = result(members);
    if (serves_) {
      lobby_->set(formed(self), std::to_string(size_));
    }
    return formed_group;
  }

  RendezvousResult join(const RankInfo& self) {
    const auto number = detail::random_name();
    const auto answer = detail::answer_key(number);
    detail::say_hello(*lobby_, rank_, number);
    await_answer(answer, formed(self));
    if (!wait(lobby_, answer)) {
      fail({0});
    }
    await_rank_0_.reset(); // rank 0 reports the missing ranks
    enter(lobby_->get_to_str(answer));
    auto member = json_of(self);
    member["world_size"] = size_;
    member["number"] = number;
    check_is_only(member.dump());
    if (!wait(room_, detail::kReplyKey)) {
      fail(absent());
    }
    const auto reply = parse_message(room_->get_to_str(detail::kReplyKey));
    room_->set(detail::has_read_key(rank_), "");
    if (reply.contains("missing")) {
      fail(reply.at("missing").get<std::vector<int64_t>>());
    }
    if (reply.contains("fault")) {
      DDP_THROW(ValueError, reply.at("fault").get<std::string>());
    }
    return result(reply.at("members").get<std::vector<json>>());
  }

  /// Whether rank 0 has answered.
  bool has_entered() const {
    return !attempt_.empty();
  }

 private:
  /// The lobby's key for the size of the group that rank 0 has formed; rank 0
  /// may form several groups.
  static std::string formed(const RankInfo& self) {
    return "formed/" + std::to_string(self.groups);
  }

  /// The rank of two processes; usually empty. Other ranks report themselves.
  /// If rank 0 serves the store, a second rank 0 cannot, and fails.
  std::string rank_that_came_twice() const {
    if (room_->check({detail::kTwiceKey})) {
      return room_->get_to_str(detail::kTwiceKey);
    }
    const bool is_alone =
        serves_ || lobby_->get_to_str(detail::hello_key(0)) == attempt_;
    return is_alone ? "" : "0";
  }

  void check_place(
      int64_t r,
      const RankInfo& other,
      detail::Reception& reception) const {
    const auto size = other.world_size;
    if (size != size_) {
      const auto larger = std::max(std::min(size, kMostAwaited), size_);
      const auto fault = different_sizes(where_, r, size, size_);
      reject(fault, reception, std::min(size, size_), larger);
    }
    if (r == size_) {
      reject(other.fault, reception, size_, size_ - 1);
    }
  }

  void tell_of(const std::vector<int64_t>& missing) const {
    detail::warn_of_wait(
        wait_notice_,
        who_,
        detail::format(
            "init_process_group: {}{} not joined the rendezvous at {}",
            detail::name_ranks(missing),
            missing.size() == 1 ? " has" : " have",
            where_));
  }

  /// Reports a fault to the ranks that have arrived, and to those that arrive
  /// until there are `all`; waits only briefly once those below `smaller` have
  /// arrived.
  [[noreturn]] void reject(
      const std::string& fault,
      detail::Reception& reception,
      int64_t smaller,
      int64_t all) const {
    reception.say({{"fault", fault}});
    reception.extend(all);
    auto end = std::min(deadline_, Clock::now() + kFaultTime);
    for (bool complete = false;
         reception.count() < all && Clock::now() < end;) {
      for (int64_t r = 1; r <= all; ++r) {
        reception.comes(r);
      }
      if (!complete && reception.absent(smaller).empty()) {
        end = std::min(end, Clock::now() + kDoubtfulTime);
        complete = true;
      }
      std::this_thread::sleep_for(kLongestBackoff);
    }
    reception.await_readers();
    DDP_THROW(ValueError, fault);
  }

  /// Reports the missing ranks to those that have arrived.
  [[noreturn]] void dismiss(const detail::Reception& reception) const {
    const auto missing = reception.absent(size_);
    reception.say({{"missing", missing}});
    reception.await_readers();
    fail(missing);
  }

  void enter(const std::string& attempt) {
    attempt_ = attempt;
    room_ = c10::make_intrusive<c10d::PrefixStore>(attempt, lobby_);
  }

  /// Waits briefly. Throws if rank 0 has formed a group without this rank,
  /// which then has another WORLD_SIZE, or the rank of another process.
  void await_answer(const std::string& key, const std::string& formed) const {
    const auto end = std::min(deadline_, Clock::now() + kAnswerTime);
    const bool answered = detail::poll_until(
        end, kLongestBackoff, [&] { return lobby_->check({key}); });
    if (answered || !lobby_->check({formed})) {
      return;
    }
    const auto size = parse_message(lobby_->get_to_str(formed)).get<int64_t>();
    DDP_CHECK_VALUE(size == size_, different_sizes(where_, rank_, size_, size));
    DDP_THROW(ValueError, came_twice(std::to_string(rank_)));
  }

  /// Throws, and reports to rank 0, if another process has joined with this
  /// process's rank.
  void check_is_only(const std::string& member) const {
    if (room_->compareSet(detail::joined_key(rank_), "", member) != member) {
      room_->set(detail::kTwiceKey, std::to_string(rank_));
      DDP_THROW(ValueError, came_twice(std::to_string(rank_)));
    }
  }

  bool wait(const StorePtr& store, const std::string& key) const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline_ - Clock::now());
    try {
      store->wait({key}, std::max(left, std::chrono::milliseconds(1)));
      return true;
    } catch (const std::exception& error) {
      DDP_CHECK_WITH(
          DistStoreError,
          Clock::now() >= deadline_,
          "{} on host {}: lost the store at {} while the group was formed (did "
          "rank 0 or the launcher end?): {}",
          who_,
          detail::host_name(),
          where_,
          detail::error_text(error));
      return false;
    }
  }

  std::string came_twice(const std::string& rank) const {
    return detail::format(
        "rank {} has joined twice at {}. Set a different RANK for each "
        "process, and a different MASTER_PORT for each job",
        rank,
        where_);
  }

  /// The ranks that have not joined, if the store still answers.
  std::vector<int64_t> absent() const {
    std::vector<int64_t> ranks;
    try {
      for (int64_t r = 1; r < size_; ++r) {
        if (!room_->check({detail::joined_key(r)})) {
          ranks.push_back(r);
        }
      }
    } catch (const std::exception&) {
      return {0}; // the store ended with rank 0
    }
    return ranks;
  }

  [[noreturn]] void fail(const std::vector<int64_t>& missing) const {
    DDP_THROW(
        DistStoreError,
        "{} on host {}: waited {} s at {} for {}, which did not join. Were all "
        "{} processes started, with the same MASTER_ADDR and MASTER_PORT?",
        who_,
        detail::host_name(),
        std::chrono::duration<double>(timeout_).count(),
        where_,
        detail::name_ranks(missing),
        size_);
  }

  RendezvousResult result(const std::vector<json>& members) const {
    RendezvousResult ranks{room_, {}};
    DDP_CHECK_WITH(
        DistStoreError,
        members.size() == static_cast<size_t>(size_),
        "the store at {} lists {} ranks, expected {}",
        where_,
        members.size(),
        size_);
    for (const auto& member : members) {
      ranks.members.push_back(to_rank_info(member));
    }
    for (int64_t i = 0; i < size_; ++i) {
      const auto r = (rank_ + i) % size_; // this rank's own fault first
      const auto& fault = ranks.members[r].fault;
      DDP_CHECK_VALUE(fault.empty(), "rank {} of {}: {}", r, size_, fault);
    }
    check_same_options(ranks.members, where_);
    return ranks;
  }

  int64_t rank_;
  int64_t size_;
  std::chrono::milliseconds timeout_;
  std::chrono::milliseconds wait_notice_;
  Clock::time_point deadline_;
  std::string where_;
  std::string who_;
  bool serves_; // whether this process serves the store
  std::optional<detail::WaitWarning> await_rank_0_;
  StorePtr lobby_; // keys of every attempt
  std::string attempt_;
  StorePtr room_; // keys of this attempt
};

} // namespace

RendezvousResult rendezvous(
    const LaunchEnvironment& environment,
    const RankInfo& self,
    std::chrono::milliseconds timeout,
    std::chrono::milliseconds wait_notice) {
  static std::atomic<bool> was_called{false};
  const bool again = was_called.exchange(true);
  const bool serves =
      environment.rank == 0 && !environment.launcher_hosts_store;
  const auto run = [=] {
    const auto start = Clock::now();
    const auto deadline = start + timeout;
    while (true) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      std::optional<RendezvousAttempt> attempt;
      try {
        attempt.emplace(environment, self.server, left, wait_notice);
        return environment.rank == 0 ? attempt->host(self)
                                     : attempt->join(self);
      } catch (const nlohmann::json::exception& error) {
        DDP_THROW(DistStoreError, kForeignMessage, error.what());
      } catch (const c10::DistError&) {
        // Unless the store of the last call is about to end: rank 0 waits for
        // its port, and the others may have met the store that rank 0 has left.
        const bool may_succeed = attempt
            ? environment.rank != 0 && !attempt->has_entered()
            : serves && Clock::now() < start + kPortTime;
        if (!again || !may_succeed || Clock::now() >= deadline) {
          throw;
        }
      }
      std::this_thread::sleep_for(kPortInterval);
    }
  };
  if (serves) {
    return run();
  }
  return detail::answered_within(timeout + kFaultTime, run);
}

} // namespace ddp
