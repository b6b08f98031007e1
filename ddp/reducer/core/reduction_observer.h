#pragma once

#include <ddp/reducer/buckets/bucket_storage.h>

#include <algorithm>

namespace ddp::detail {

/// Who takes part in a reduction.
struct Participants {
  /// Sums over ranks are divided by it.
  int64_t divisor = 1;
  /// Whether this rank takes part with its gradients, not with zeros.
  bool has_inputs = true;
  /// Whether all ranks do.
  bool of_all = true;
  /// A rank that does.
  int64_t root = 0;
  /// Whether ranks without inputs are told what to do, within a `Join`.
  bool joined = false;
};

/// A reduction of the gradients of one backward.
struct Reduction : Participants {
  /// Counts them, from 1; 0 in a group of one.
  int64_t step = 0;
  /// The parameters that this rank has nothing new for, once that is known.
  std::vector<size_t> unused;
};

/// What listens to the course of a reduction. In this order, but that new
/// buckets come before what is unused is known:
class ReductionObserver {
 public:
  virtual ~ReductionObserver() = default;

  /// A reduction with this rank's gradients is about to begin. Changes who
  /// takes part, if not all ranks do.
  virtual void on_open(Participants& /*participants*/) {}
  virtual void on_begin(const Reduction& /*reduction*/) {}
  /// It has begun within a backward, on this thread.
  virtual void on_backward() {}

  /// Whether it wants to know of each parameter in the reduction that begins.
  virtual bool watches_parameters() const {
    return false;
  }
  /// If so: a gradient of this rank's own, before it is averaged. May throw.
  virtual void on_own_gradient(
      const ParameterState& /*parameter*/,
      const at::Tensor& /*gradient*/) {}
  /// If so: the parameter's gradient is ready to be reduced.
  virtual void on_parameter_ready(size_t /*index*/) {}
  /// So are all of the bucket's.
  virtual void on_bucket_ready(const Bucket& /*bucket*/) {}

  /// The bucket's reduction is started; it may be complete right after.
  virtual void on_launch(const Bucket& /*bucket*/) {}
  virtual void on_launched(const Bucket& /*bucket*/) {}

  /// Backward is over, and what is unused is known. May throw.
  virtual void on_computed(const Reduction& /*reduction*/) {}
  /// There are new buckets, of parameters that were unfrozen.
  virtual void on_new_buckets() {}
  /// All buckets are started. Collectives of its own may follow.
  virtual void on_all_launched(const Reduction& /*reduction*/) {}

  /// Whether `on_reduced` or `on_end` will have collectives of its own.
  virtual bool ends_with_collectives() const {
    return false;
  }
  /// All that is reduced is waited for.
  virtual void on_finish(const Reduction& /*reduction*/) {}
  /// The bucket's reduction is waited for, which takes until it is complete.
  virtual void on_wait(const Bucket& /*bucket*/) {}
  /// Called again and again meanwhile. May throw `WaitFailure`.
  virtual void on_long_wait() {}
  virtual void on_waited(const Bucket& /*bucket*/) {}
  /// The buffer has what was reduced.
  virtual void on_bucket_done(const Bucket& /*bucket*/) {}

  /// All are reduced; the gradients follow. May throw.
  virtual void on_reduced() {}
  /// The gradients are the means.
  virtual void on_grads_populated() {}
  /// All is ready for the next one, but that buckets may be rebuilt still.
  virtual void on_end(const Reduction& /*reduction*/) {}
  /// An exception ended it, and the Reducer is of no use any more.
  virtual void on_failed() {}
};

/// The observers of a Reducer, in the order in which they are told.
class ObserverList {
 public:
  /// `observer` must live as long.
  void add(ReductionObserver& observer) {
    all_.push_back(&observer);
  }

  Participants participants(int64_t group_size) const {
    Participants result;
    result.divisor = group_size;
    for (auto* observer : all_) {
      observer->on_open(result);
    }
    return result;
  }

  void begin(const Reduction& reduction) {
    watching_.clear();
    for (auto* observer : all_) {
      observer->on_begin(reduction);
      if (observer->watches_parameters()) {
        watching_.push_back(observer);
      }
    }
  }

  template <typename... Parameters, typename... Arguments>
  void tell(
      void (ReductionObserver::*event)(Parameters...),
      const Arguments&... arguments) const {
    for (auto* observer : all_) {
      (observer->*event)(arguments...);
    }
  }

  /// A gradient of this rank's own. Throws `c10::Error` if it does not fit.
  void look_at(const ParameterState& parameter, const at::Tensor& gradient)
      const {
    parameter.check_fit(gradient);
    for (auto* observer : watching_) {
      observer->on_own_gradient(parameter, gradient);
    }
  }

  /// Those that want to know of each parameter in this reduction.
  const std::vector<ReductionObserver*>& watching() const {
    return watching_;
  }

  bool end_with_collectives() const {
    return std::any_of(all_.begin(), all_.end(), [](auto* observer) {
      return observer->ends_with_collectives();
    });
  }

 private:
  std::vector<ReductionObserver*> all_;
  std::vector<ReductionObserver*> watching_;
};

} // namespace ddp::detail
