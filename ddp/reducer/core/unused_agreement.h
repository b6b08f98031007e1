#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace ddp::detail {

/// The ranks' agreement, outside the collectives, on whether every rank has
/// unused parameters: only then can globally unused parameters exist.
///
/// A zero gradient differs from a missing gradient, and no value in a bucket
/// can mark the difference without changing a bit. Before a rank with unused
/// parameters launches their first collective, the rank adds one to the step's
/// count in a store. The rank reads the count when their collectives are
/// complete: every rank has then launched these collectives, and the count is
/// final. A step without unused parameters costs nothing; otherwise, each rank
/// with unused parameters makes two small requests. If ranks do not wait for
/// each other in the collectives, as may happen with a program's communication
/// hook, the first rank that reads an incomplete count closes it.
class UnusedAgreement {
 public:
  /// `store` is the Reducer's part of the group's store, null in a group of
  /// one. Requests throw if they take longer than `timeout`, or if the nodes of
  /// the job change meanwhile. `kept_together` is whether ranks wait for each
  /// other in collectives.
  UnusedAgreement(
      c10::intrusive_ptr<c10d::Store> store,
      int64_t size,
      std::chrono::milliseconds timeout,
      bool kept_together);

  /// Reports to the others that this rank has unused parameters in this step.
  void add_to_counter(int64_t step);

  /// Whether all ranks have called `add_to_counter` for the step of this rank's
  /// last call. Call it once, after the collectives of the step.
  bool concerns_all();

 private:
  bool is_complete(int64_t counts) const;
  bool is_closed(int64_t counts) const;
  int64_t read() const;
  std::vector<std::string> old_keys();

  c10::intrusive_ptr<c10d::Store> store_;
  int64_t size_;
  std::chrono::milliseconds timeout_;
  bool kept_together_;
  /// A key contains the counts of several steps, each with this many bits; the
  /// last bit marks a closed count.
  int64_t bits_;
  int64_t steps_per_key_;
  std::string key_;
  int64_t shift_ = 0;
  /// The counts immediately after this rank's addition.
  int64_t counts_ = 0;
  /// The keys that this rank created, and must delete.
  std::vector<std::string> own_keys_;
};

} // namespace ddp::detail
