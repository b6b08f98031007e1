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

/// A failure that a rank reported to the other ranks.
struct Failure {
  std::string scope;
  /// The failed rank in the group that reads the failure, or in the root group
  /// if the reading group does not contain the rank; `size` is the size of that
  /// group.
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

/// The state of a rank while other ranks wait.
struct WaitStatus {
  /// Whether the rank has started as many collectives as the waiting ranks.
  bool came = false;
  /// The call in which the rank waits, in this group if it came, otherwise in
  /// any group; empty if the rank does not wait, or has not waited long.
  std::string call;

  bool operator==(const WaitStatus& other) const {
    return came == other.came && call == other.call;
  }
};

/// Whether `scope` names the group of `failed` or a group made from it.
bool concerns(const std::string& failed, const std::string& scope);

/// A list in the store in which the ranks of one attempt report failures.
///
/// Groups are named by scopes: "" is the root, "/0/2" the third duplicate of
/// its first duplicate, "/1_0" the part with color 0 of a split. A failure
/// concerns its group and all groups made from that group.
///
/// No function throws, and each function returns in bounded time: requests run
/// on separate threads, over a separate connection. If the store has ended,
/// functions report and find nothing.
class FailureStore {
 public:
  /// Returns null if the store is not suitable. If `hosts_store` is true, the
  /// store ends with this process, so this process waits up to 5 s for the
  /// other ranks to read its report.
  static std::shared_ptr<FailureStore> open(
      const c10::intrusive_ptr<c10d::Store>& store,
      int64_t rank,
      int64_t size,
      bool hosts_store);

  /// This process's rank in the root group.
  int64_t root_rank() const {
    return root_rank_;
  }
  int64_t root_size() const {
    return root_size_;
  }

  /// Whether the store is known to have ended and the group contains rank 0 of
  /// the root group, which ends with the store.
  bool has_lost_rank_0() const;

  /// The failure store for a part of this group: the members with these ranks.
  std::shared_ptr<FailureStore> of(const std::vector<int64_t>& ranks) const;

  /// Reports a failure. Returns when the other ranks can read the failure, or
  /// after a few seconds.
  void report(
      const std::string& scope,
      const std::string& text,
      Failure::Kind kind = Failure::Kind::kOwn);

  /// Reports a consequence. From line `since` of the list on, returns the text
  /// of the first consequence in this group, its parent groups, or groups made
  /// from this group. All ranks get the same text.
  std::string report_consequence(
      const std::string& scope,
      const std::string& text,
      size_t since);

  /// The other ranks' failures that concern `scope`, in order. Takes one round
  /// trip if no rank has failed.
  std::vector<Failure> read(const std::string& scope);

  /// Publishes that this rank waits in `call` and has started `number`
  /// collectives. Returns `std::nullopt` if the store does not answer.
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
  /// another rank continues. If so, no other rank may report a wait until this
  /// wait ends.
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
  /// All lines before this number have been drained.
  std::atomic<size_t> told_{0};
};

} // namespace ddp::detail
