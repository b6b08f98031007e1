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

/// Whether every rank has parameters that its backward did not use, agreed
/// beside the collectives: only then can there be some that no rank used.
///
/// A gradient of zero is not an absent one, and no value in a bucket can say
/// which it is without changing a bit. So a rank that misses gradients adds one
/// to the step's count in a store, before it starts the first collective that
/// they are in, and reads the count when those collectives are complete: then
/// every rank has started them, and the count is final. A step without unused
/// parameters costs nothing, another one two small requests of each rank that
/// has some. If collectives do not keep the ranks together, as those of a
/// program's communication hook may not, the first to read a count that is not
/// complete closes it.
class UnusedAgreement {
 public:
  /// `store` is a Reducer's part of the group's, and may be null for a group of
  /// one; what it does not answer within `timeout` throws. `kept_together`: by
  /// collectives.
  UnusedAgreement(
      c10::intrusive_ptr<c10d::Store> store,
      int64_t size,
      std::chrono::milliseconds timeout,
      bool kept_together);

  /// Tells the others that this rank has unused parameters in this step.
  void announce(int64_t step);

  /// Whether all ranks have announced the step that this one announced last. To
  /// be called once, after the collectives of the step.
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
  /// A key has the counts of several steps, of so many bits each, the last of
  /// which says that it is closed.
  int64_t bits_;
  int64_t steps_per_key_;
  std::string key_;
  int64_t shift_ = 0;
  /// What was there right after this rank had added one.
  int64_t counts_ = 0;
  /// The keys that this rank was the first to add to, and has to delete.
  std::vector<std::string> own_keys_;
};

} // namespace ddp::detail
