#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>
#include <ddp/internal/export.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ddp {

/// Indices of a bucket's parameters in `Reducer::parameters()`.
using BucketIndices = std::vector<size_t>;

class ProcessGroup;
class Reducer;

/// Gradients that are reduced together, as passed to a communication hook.
struct DDP_API GradBucket {
  /// The bucket's index in the order of reduction.
  size_t index = 0;
  /// Whether this is the last bucket of the layout. This bucket may be left out
  /// by `skip_all_reduce_unused_params`; in a backward pass that unfreezes
  /// parameters, their buckets follow, with a last one of their own.
  bool is_last = false;
  /// The number of backward passes that the Reducer reduced before this one.
  int64_t iteration = 0;
  /// This rank's gradients, concatenated in one dimension; zeros for parameters
  /// without a gradient on this rank.
  at::Tensor buffer;
  /// Slices of `buffer` in the parameters' shapes.
  std::vector<at::Tensor> gradients;
  /// The parameters, in the same order.
  std::vector<at::Tensor> parameters;

  /// Returns a copy of this bucket with the buffer `other`, which has the same
  /// number of elements; the dtype may differ.
  GradBucket with_buffer(const at::Tensor& other) const;
};

/// Reduces a bucket across ranks: the extension point for compression. A hook
/// serves one Reducer, which calls the hook for each bucket in turn on the
/// threads of the backward pass. A second Reducer is rejected until the first
/// is destroyed. If a backward pass fails, the ranks' hooks may have different
/// states: give the next Reducer a new hook, or load a saved state.
class DDP_API CommHook {
 public:
  CommHook() = default;
  /// A copy has no Reducer.
  CommHook(const CommHook& /*other*/) {}
  /// Changes nothing: the hook keeps its Reducer.
  CommHook& operator=(const CommHook& /*other*/) {
    return *this;
  }
  virtual ~CommHook() = default;

  /// Describes the hook and its options in one line; by default, returns the
  /// class name. A Reducer's construction compares this line across ranks.
  virtual std::string describe() const;

  /// Whether the hook needs gradients divided by the number of ranks in
  /// advance, so that a sum is a mean. Called once.
  virtual bool takes_scaled_gradients() const {
    return false;
  }

  /// Whether all ranks get the same gradients, so that their parameters remain
  /// equal. `check_divergence_every` requires `true`.
  virtual bool keeps_ranks_equal() const {
    return true;
  }

  /// The hooks that this hook runs, which then serve the same Reducer; none by
  /// default. A Reducer calls this method once.
  virtual std::vector<std::shared_ptr<CommHook>> inner_hooks() const {
    return {};
  }

  /// Forms the groups that the hook needs besides `group`; by default, none.
  /// Returns the group with which the hook runs its `inner_hooks`; by default,
  /// `group`. A Reducer's construction calls this method with the group of
  /// `run`, since within a backward pass, ranks may be in other collectives.
  /// Collective.
  virtual ProcessGroup connect(const ProcessGroup& group);

  /// Starts the reduction of `bucket` over `group`, without waiting for it.
  /// Returns a future of the result: a tensor of the buffer's shape, dtype and
  /// device, possibly the buffer itself, or a list of one such tensor. The hook
  /// may run collectives on `group`, which nothing else uses meanwhile. All
  /// ranks call `run` with the same buckets in the same order. Exceptions end
  /// the backward pass. To detect globally unused parameters, the Reducer
  /// relies on a future that completes only after all ranks have called `run`.
  /// If a hook does not communicate, globally unused parameters may get
  /// gradients of zero.
  virtual c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) = 0;

  /// The part of the hook's state that is equal on all ranks; none by default.
  /// `Reducer::state_dict` includes this part. Call this method between
  /// backward passes. Not collective.
  virtual c10::IValue state_dict() const;

  /// Resumes from the result of `state_dict`. Throws `c10::ValueError` for any
  /// other value; the hook is then unchanged. Not collective.
  virtual void load_state_dict(const c10::IValue& state);

  /// The part of the hook's state that differs between ranks;
  /// `Reducer::rank_state_dict` returns this part. A hook must return a state
  /// either always or never.
  virtual c10::IValue rank_state_dict() const;
  /// Loads the result of `rank_state_dict` on this rank. Throws `c10::Error`
  /// for any other value. Not collective.
  virtual void load_rank_state_dict(const c10::IValue& state);

 private:
  friend struct ReducerImpl;

  /// The part of a Reducer that this hook serves; expired if it serves none.
  std::weak_ptr<void> user_;
};

/// The default hook: one all-reduce that sums scaled gradients.
class DDP_API AllReduceHook final : public CommHook {
 public:
  bool takes_scaled_gradients() const override {
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;
};

} // namespace ddp
