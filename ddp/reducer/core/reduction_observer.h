#pragma once

#include <ddp/reducer/buckets/bucket_storage.h>

namespace ddp::detail {

/// The ranks that participate in a reduction.
struct Participants {
  /// The divisor of sums across ranks.
  int64_t divisor = 1;
  /// Whether this rank participates with its gradients, not with zeros.
  bool has_inputs = true;
  /// Whether all ranks participate with their gradients.
  bool of_all = true;
  /// A rank that participates with its gradients.
  int64_t root = 0;
  /// Whether steps are reported to ranks without inputs, within a `Join`.
  bool joined = false;
  /// Whether ranks may wait, before they have computed their gradients, for a
  /// rank that computes none.
  bool waited_for = false;
};

/// A reduction of the gradients of one backward pass.
struct Reduction : Participants {
  /// The number of the reduction, from 1; 0 in a group of one.
  int64_t step = 0;
  /// The parameters without a new gradient on this rank, once known.
  std::vector<size_t> unused;
};

/// Receives the events of a reduction, in this order. Events of parameters and
/// buckets that are marked ready at the end follow `on_computed`.
class ReductionObserver {
 public:
  virtual ~ReductionObserver() = default;

  /// A reduction with this rank's gradients is about to begin. Changes
  /// `participants` if not all ranks participate.
  virtual void on_open(Participants& /*participants*/) {}
  virtual void on_begin(const Reduction& /*reduction*/) {}
  /// The reduction has begun within a backward pass, on this thread.
  virtual void on_backward() {}

  /// Whether the observer needs each parameter's events in the new reduction.
  virtual bool watches_parameters() const {
    return false;
  }
  /// If `watches_parameters` is true, receives each gradient of this rank
  /// before it is averaged, or an unused parameter's earlier mean. May throw.
  virtual void on_own_gradient(
      const ParameterState& /*parameter*/,
      const at::Tensor& /*gradient*/) {}
  /// The parameter's gradient is ready to be reduced. Called if
  /// `watches_parameters` is true.
  virtual void on_parameter_ready(size_t /*index*/) {}
  /// All gradients of the bucket are in its buffer.
  virtual void on_bucket_ready(const Bucket& /*bucket*/) {}

  virtual void on_launch(const Bucket& /*bucket*/) {}
  /// The bucket's reduction has been launched, and may be complete already.
  virtual void on_launched(const Bucket& /*bucket*/) {}

  /// New buckets exist, for parameters that were unfrozen.
  virtual void on_new_buckets() {}
  /// Backward is over, and unused parameters are known (including those that
  /// `skip_all_reduce_unused_params` leaves out afterwards). May throw.
  virtual void on_computed(const Reduction& /*reduction*/) {}
  /// All buckets are launched. The observer's collectives may follow.
  virtual void on_all_launched(const Reduction& /*reduction*/) {}

  /// The wait for all reductions begins.
  virtual void on_finalize(const Reduction& /*reduction*/) {}
  /// The wait for the bucket's reduction begins.
  virtual void on_wait(const Bucket& /*bucket*/) {}
  /// Called repeatedly during the wait. May throw `WaitFailure`.
  virtual void on_long_wait() {}
  virtual void on_waited(const Bucket& /*bucket*/) {}
  /// The bucket's buffer contains the result.
  virtual void on_bucket_done(const Bucket& /*bucket*/) {}

  /// All buckets are reduced. The gradients of globally unused parameters are
  /// restored next, and then grads are populated. May throw.
  virtual void on_reduced() {}
  /// The gradients are the means.
  virtual void on_grads_populated() {}
  /// The Reducer is ready for the next reduction.
  virtual void on_end(const Reduction& /*reduction*/) {}
  /// The reduction threw, and the Reducer cannot be used again. Not called if
  /// the model's own backward pass threw.
  virtual void on_failed() {}
};

/// The observers of a Reducer, in the order of their calls.
class ObserverList {
 public:
  /// `observer` must outlive the list.
  void add(ReductionObserver& observer) {
    all_.push_back(&observer);
  }

  Participants open(int64_t group_size) const {
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

  /// Checks a gradient of this rank. Throws `c10::Error` if the gradient does
  /// not fit.
  void check_gradient(
      const ParameterState& parameter,
      const at::Tensor& gradient) const {
    parameter.check_fit(gradient);
    for (auto* observer : watching_) {
      observer->on_own_gradient(parameter, gradient);
    }
  }

  /// The observers that need the events of each parameter in this reduction.
  const std::vector<ReductionObserver*>& watching() const {
    return watching_;
  }

 private:
  std::vector<ReductionObserver*> all_;
  std::vector<ReductionObserver*> watching_;
};

} // namespace ddp::detail
