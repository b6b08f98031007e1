#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace ddp::detail {

/// What a rank told the others when it failed.
struct Failure {
  std::string scope;
  /// In the group that reads it, or, where that has no such member, in the root
  /// group; `size` is that group's.
  int64_t rank = 0;
  int64_t size = 1;
  std::string host;
  std::string text;
  enum class Kind {
    kOwn, ///< this rank's
    kConsequence, ///< what it saw of another rank's end, or in a wait
    kCommon, ///< every rank's: all throw the text as it is
  } kind = Kind::kOwn;
};

/// What a rank found when it said that it waits.
struct WaitState {
  /// The lines of the list.
  size_t lines = 0;
  /// Of this wait, among those of this rank.
  std::string id;
};

/// Where a rank is while others wait.
struct WaitStatus {
  /// Whether it has started as many collectives as they have.
  bool came = false;
  /// What it waits in, in which group ever; empty if it does not wait, or not
  /// for long.
  std::string call;

  bool operator==(const WaitStatus& other) const {
    return came == other.came && call == other.call;
  }
};

/// Where the ranks of one attempt tell each other that they failed: a list in
/// the store.
///
/// Groups are named by scopes: "" is the root, "/0/2" the third duplicate of
/// its first duplicate, "/1_0" the part with color 0 of a split. A failure
/// concerns its group and all that come from it.
///
/// No function throws, and each is bounded in time: requests run on threads of
/// their own, over a connection of their own. Where the store is gone nothing
/// is reported and nothing found.
class FailureStore {
 public:
  /// Null if the store cannot serve. `hosts_store`: the store ends with this
  /// process, which then gives the others up to 5 s to read before it
  /// continues.
  static std::shared_ptr<FailureStore> open(
      const c10::intrusive_ptr<c10d::Store>& store,
      int64_t rank,
      int64_t size,
      bool hosts_store);

  /// This process's rank in the root group.
  int64_t root_rank() const {
    return root_rank_;
  }

  /// Whether the store has ended, where that is known, and rank 0 of the root,
  /// which ends with it, is a member of the group.
  bool has_lost_rank_0() const;

  /// The same for a part of this one's group, by these ranks.
  std::shared_ptr<FailureStore> of(const std::vector<int64_t>& ranks) const;

  /// Returns when the others can read it, or after some seconds.
  void report(
      const std::string& scope,
      const std::string& text,
      Failure::Kind kind = Failure::Kind::kOwn);

  /// Reports a consequence. Returns the text of the first one on the list from
  /// line `since` on, of this group, of one that it comes from or of one that
  /// comes from it: the same on all ranks.
  std::string report_consequence(
      const std::string& scope,
      const std::string& text,
      size_t since);

  /// The other ranks' failures that concern `scope`, in order. One round trip
  /// where there are none.
  std::vector<Failure> read(const std::string& scope);

  /// Says that this rank waits in `call` and has started `number` collectives.
  /// Nothing if the store does not answer.
  std::optional<WaitState> mark_waiting(
      const std::string& scope,
      int64_t number,
      const std::string& call);

  /// Says that it waits no more.
  void leave();

  /// Where each rank of the group is, by what it said of its waits; empty if
  /// the store does not answer.
  std::vector<WaitStatus> wait_status(const std::string& scope, int64_t number);

  /// Whether no wait that continues was told of. Then this one is, and until
  /// its end no other.
  bool may_report_wait(const WaitState& state);

 private:
  struct Connection;
  struct Line {
    size_t number;
    Failure failure;
  };

  FailureStore(
      std::shared_ptr<Connection> connection,
      int64_t root_rank,
      int64_t root_size,
      bool hosts_store,
      std::vector<int64_t> members);

  Failure in_this_group(Failure failure) const;

  std::vector<Line> lines(const std::string& scope);
  std::vector<std::string> acks(const std::vector<Line>& lines) const;
  void drain(
      const std::string& scope,
      std::vector<Line> found,
      std::chrono::seconds time);

  std::shared_ptr<Connection> connection_;
  int64_t root_rank_;
  int64_t root_size_;
  bool hosts_store_;
  /// The ranks of the group that it is for, as ranks of the root.
  std::vector<int64_t> members_;
  /// Lines before this one have been drained for.
  std::atomic<size_t> told_{0};
};

} // namespace ddp::detail
