#pragma once

#include <ddp/process_group/agreement/store_gather.h>

#include <chrono>
#include <cstddef>

namespace ddp::detail {

/// What no rank has a gradient for, agreed over ranks beside the collectives.
///
/// A gradient of zero is not an absent one, and no value in a bucket can say
/// which it is without changing a bit. So a rank that lacks gradients writes
/// which ones under the step's key of a store, before it starts the first
/// collective they are in. The last of all ranks to write finds what the lists
/// have in common; if some rank lacks nothing, it writes nothing and there is
/// no last. All read the result once those collectives are complete: then every
/// rank has started them.
class Absences {
 public:
  /// `store` is for this alone, and may be null for a group of one; what it
  /// does not answer within `timeout` throws.
  Absences(
      c10::intrusive_ptr<c10d::Store> store,
      int64_t rank,
      int64_t size,
      std::chrono::milliseconds timeout);

  /// Tells the others that this rank lacks `indices` (ascending, not empty) in
  /// this step.
  void announce(int64_t step, const std::vector<size_t>& indices);

  /// Which of the announced indices every rank lacks. To be called once, after
  /// the collectives of the step that they are in.
  std::vector<size_t> agreed();

  /// Waits until every rank has read the lists of `step`, if there are some,
  /// but not for long. For the rank that hosts the store, before it may end.
  void linger(int64_t step) noexcept;

 private:
  StoreGather lists(int64_t step) const;

  c10::intrusive_ptr<c10d::Store> store_;
  int64_t rank_;
  int64_t size_;
  std::chrono::milliseconds timeout_;
  int64_t step_ = 0;
  std::vector<size_t> own_;
};

} // namespace ddp::detail
