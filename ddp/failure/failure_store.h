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

/// The failure that a rank reported to the others.
struct Failure {
  std::string scope;
  /// The rank in the group that reads the failure, or in the root group if the
  /// reading group does not contain it; `size` is the size of that group.
  int64_t rank = 0;
  int64_t size = 1;
  std::string host;
  std::string text;
  enum class Kind {
    kOwn, ///< the rank's own failure
    kConsequence, ///< the end of another rank, or a failed wait
    kCommon, ///< common to all ranks, which throw the text unchanged
  } kind = Kind::kOwn;
};

/// The result of `mark_waiting`.
struct WaitState {
  /// The number of lines in the list.
  size_t lines = 0;
  /// Identifies this wait among the waits of this rank.
  std::string id;
};

/// The state of a rank while others wait.
struct WaitStatus {
  /// Whether the rank has started as many collectives as the waiting ranks.
  bool came = false;
  /// The call in which the rank waits, in any group; empty if it does not wait,
  /// or has not waited long.
  std::string call;

  bool operator==(const WaitStatus& other) const {
    return came == other.came && call == other.call;
  }
};

/// A list in the store in which the ranks of one attempt report failures.
///
/// Groups are named by scopes: "" is the root, "/0/2" the third duplicate of
/// its first duplicate, "/1_0" the part with color 0 of a split. A failure
/// concerns its group and all groups made from it.
///
/// No function throws, and each is bounded in time: requests run on separate
/// threads, over a separate connection. If the store has ended, nothing is
/// reported or found.
class FailureStore {
 public:
  /// Returns null if the store is not suitable. With `hosts_store`, the store
  /// ends with this process, which therefore gives the others up to 5 s to read
  /// its report.
  static std::shared_ptr<FailureStore> open(
      const c10::intrusive_ptr<c10d::Store>& store,
      int64_t rank,
      int64_t size,
      bool hosts_store);

  /// This process's rank in the root group.
  int64_t root_rank() const {
    return root_rank_;
  }

  /// Whether the store is known to have ended, and rank 0 of the root group,
  /// which ends with it, is a member of the group.
  bool has_lost_rank_0() const;

  /// The failure store for a part of this group: the members with these ranks.
  std::shared_ptr<FailureStore> of(const std::vector<int64_t>& ranks) const;

  /// Reports a failure. Returns when the others can read it, or after some
  /// seconds.
  void report(
      const std::string& scope,
      const std::string& text,
      Failure::Kind kind = Failure::Kind::kOwn);

  /// Reports a consequence. Returns the text of the list's first consequence
  /// from line `since` on, in this group, its parent groups, or groups made
  /// from it. All ranks get the same text.
  std::string report_consequence(
      const std::string& scope,
      const std::string& text,
      size_t since);

  /// The other ranks' failures that concern `scope`, in order. Takes one round
  /// trip if there are none.
  std::vector<Failure> read(const std::string& scope);

  /// Publishes that this rank waits in `call` and has started `number`
  /// collectives. Returns nothing if the store does not answer.
  std::optional<WaitState> mark_waiting(
      const std::string& scope,
      int64_t number,
      const std::string& call);

  /// Publishes that this rank no longer waits.
  void leave();

  /// The published state of each rank of the group; empty if the store does not
  /// answer.
  std::vector<WaitStatus> wait_status(const std::string& scope, int64_t number);

  /// Returns whether this rank may report its wait, because no reported wait of
  /// another rank continues. Then no other rank may report one until this wait
  /// ends.
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
  /// The members of the group, as ranks of the root group.
  std::vector<int64_t> members_;
  /// The lines before this number have been drained.
  std::atomic<size_t> told_{0};
};

} // namespace ddp::detail
