#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>
#include <ddp/internal/export.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp {

/// Indices into `Reducer::parameters()` of what is reduced together.
using BucketIndices = std::vector<size_t>;

class ProcessGroup;
class Reducer;

/// Gradients that are reduced together, as a communication hook sees them.
struct DDP_API GradBucket {
  /// Its place in the order of reduction.
  size_t index = 0;
  /// Whether it is the last of this backward.
  bool is_last = false;
  /// How many backwards its Reducer has reduced before this one.
  int64_t iteration = 0;
  /// One-dimensional: this rank's gradients back to back. If a rank has none
  /// for a parameter, zero.
  at::Tensor buffer;
  /// Slices of `buffer` in the parameters' shapes.
  std::vector<at::Tensor> gradients;
  /// The parameters, in the same order.
  std::vector<at::Tensor> parameters;

  /// The same bucket with its gradients in another buffer of as many elements,
  /// whose dtype may differ.
  GradBucket with_buffer(const at::Tensor& other) const;
};

/// How a bucket is reduced over ranks: the seam for compression and the like.
/// One object serves one Reducer, which calls it for each bucket in turn, from
/// the threads that run backward; another one is refused until that is gone.
class DDP_API CommHook {
 public:
  CommHook() = default;
  /// A copy serves no Reducer yet.
  CommHook(const CommHook& /*other*/) {}
  CommHook& operator=(const CommHook& /*other*/) {
    return *this;
  }
  virtual ~CommHook() = default;

  /// What it is and its options, in one line, by which construction of a
  /// Reducer compares the ranks' hooks; by default the name of its class.
  virtual std::string describe() const;

  /// Whether the gradients in the buffer are divided by the number of ranks
  /// already, so that a sum is a mean. Asked once.
  virtual bool takes_scaled_gradients() const {
    return false;
  }

  /// Starts the reduction of `bucket` over `group`, without waiting for it.
  /// Returns a future of the result: a tensor of the buffer's shape, dtype and
  /// device, which may be the buffer itself, or a list of one. It may use
  /// `group` for its collectives, which nothing else uses meanwhile; all ranks
  /// call it with the same buckets in the same order. What it throws ends
  /// backward. That all ranks take part before the future is complete is how
  /// they know what none of them used: with a hook that does not communicate,
  /// such parameters may get gradients of zero.
  virtual c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) = 0;

  /// What another run needs to go on as this one does, if that is the same on
  /// all ranks; none by default. A part of `Reducer::state_dict`. To be called
  /// between backwards. Not collective.
  virtual c10::IValue state_dict() const;

  /// Goes on from what `state_dict` returned. Throws `c10::ValueError` for what
  /// is no such state; then nothing has changed. Not collective.
  virtual void load_state_dict(const c10::IValue& state);

  /// The same for what each rank has of its own: a part of
  /// `Reducer::rank_state_dict`. Whether there is any may not change.
  virtual c10::IValue rank_state_dict() const;
  virtual void load_rank_state_dict(const c10::IValue& state);

 private:
  friend struct ReducerImpl;

  /// The part of a Reducer that it serves.
  void* user_ = nullptr;
};

/// The default: one all-reduce, a sum of scaled gradients.
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
