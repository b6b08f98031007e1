#pragma once

#include <ddp/process_group.h>

#include <future>

namespace ddp::detail {

/// Compares within a backward which parameters the ranks take in or leave out.
/// A rank that has nothing to compare does not come: it learns of the others
/// while it waits for its buckets.
class BackwardComparison {
 public:
  /// `store` is a Reducer's part of the group's, and may be null.
  BackwardComparison(
      c10::intrusive_ptr<c10d::Store> store,
      const ProcessGroup& group);

  /// Waits for the others to come to the same point of backward `step` with the
  /// same `names`; `noun` says of what. Throws `c10::Error` where they do not.
  /// Collective.
  void compare(int64_t step, const std::string& noun, const std::string& names);

  /// For a rank that waits in backward `step`: throws `WaitFailure` where
  /// another waits in `compare`, of this backward or of the one before, to
  /// which this rank has not come.
  void check_others(int64_t step);

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  ProcessGroup group_;
  /// The last one that this rank came to.
  int64_t step_ = 0;
  /// What the store was asked of the others, while it has not answered.
  std::future<std::string> answer_;
};

} // namespace ddp::detail
