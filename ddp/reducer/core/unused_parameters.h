#pragma once

#include <ddp/reducer/core/gradient_hook.h>
#include <ddp/reducer/core/gradient_reduction.h>
#include <ddp/reducer/core/unused_agreement.h>

namespace ddp::detail {

/// The parameters that this rank's backward did not use. What no rank used
/// keeps its gradient.
class UnusedParameters {
 public:
  /// `store` is a Reducer's part of the group's; `kept_together` as in
  /// `UnusedAgreement`. All that is referred to must live as long.
  UnusedParameters(
      std::vector<ParameterState>& parameters,
      BucketStorage& buckets,
      GradientReduction& reduction,
      const ProcessGroup& group,
      const c10::intrusive_ptr<c10d::Store>& store,
      bool kept_together);

  /// Those that are managed and have nothing new, at the end of backward.
  /// Throws `c10::Error` if one is no longer `listener`'s.
  std::vector<size_t> find(const GradientListener& listener);

  /// Tells the others of them, before the collectives that they are in.
  void announce(const Reduction& reduction) {
    if (!reduction.unused.empty()) {
      agreement_.announce(reduction.step);
    }
  }

  /// After these: puts back what was there of those that no rank used.
  /// Collective, where all ranks have some.
  void restore(const Reduction& reduction);

 private:
  std::vector<size_t> of_all_ranks(const std::vector<size_t>& unused);

  std::vector<ParameterState>& parameters_;
  BucketStorage& buckets_;
  GradientReduction& reduction_;
  ProcessGroup group_;
  UnusedAgreement agreement_;
  bool has_sparse_;
};

} // namespace ddp::detail
