#pragma once

#include <ddp/reducer/core/gradient_hook.h>
#include <ddp/reducer/core/gradient_reduction.h>
#include <ddp/reducer/core/unused_agreement.h>

namespace ddp::detail {

/// The unused parameters of this rank. Globally unused parameters keep their
/// gradient, except on ranks without inputs.
class UnusedParameters {
 public:
  /// `store` and `kept_together` are as in `UnusedAgreement`. All references
  /// must outlive this object.
  UnusedParameters(
      std::vector<ParameterState>& parameters,
      BucketStorage& buckets,
      GradientReduction& reduction,
      const ProcessGroup& group,
      const c10::intrusive_ptr<c10d::Store>& store,
      bool kept_together);

  /// Returns the trainable parameters without a new gradient at the end of
  /// backward. Throws `c10::Error` if `listener` no longer listens to one of
  /// these parameters.
  std::vector<size_t> find_unused(const GradientListener& listener);

  /// Reports unused parameters to the other ranks, before their collectives.
  void add_to_counter(const Reduction& reduction) {
    if (!reduction.unused.empty()) {
      agreement_.add_to_counter(reduction.step);
    }
  }

  /// Restores the gradients of globally unused parameters. Call this after the
  /// collectives of unused parameters. Collective if all ranks have unused
  /// parameters.
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
