#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <utility>
#include <vector>

namespace ddp::detail {

/// The part of a gradient that this rank has put into the reduction.
enum class GradState {
  kPending, ///< nothing yet; after `restore`, the gradient does not change
  kOutside, ///< the gradient, to be copied into its slice with others
  kUnscaled, ///< the gradient, which is already in the slice
  kScaled, ///< a copy of the gradient, scaled unless the hook scales
  kUnused, ///< nothing new: the earlier gradient, or zero
};

/// Each gradient of each step costs this; `==` would call memcmp.
inline bool same_sizes(c10::IntArrayRef a, c10::IntArrayRef b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) {
    same = a[i] == b[i];
  }
  return same;
}

/// A parameter of a Reducer, and the state of its gradient.
struct ParameterState {
  static constexpr size_t kNoBucket = static_cast<size_t>(-1);

  ParameterState(at::Tensor parameter, std::string key, bool sparse);

  /// The name for messages; a number becomes "parameter 3".
  std::string name() const;

  /// Whether `now`, the tensor or its gradient, fits the original tensor.
  bool fits(const at::Tensor& now) const {
    return now.scalar_type() == dtype && now.device() == device &&
        same_sizes(now.sizes(), sizes);
  }

  /// Throws `c10::Error` unless `fits` holds for the gradient and the tensor.
  void check_fit(const at::Tensor& gradient) const;

  /// Whether gradients were added since the last reduction. Autograd adds to a
  /// kept gradient in place, which changes its version.
  bool has_grown(const at::Tensor& gradient) const {
    return gradient.defined() &&
        !(gradient.is_same(slice_) && version_of(gradient) == version);
  }
  void remember_version() {
    version = view.defined() ? version_of(view) : -1;
  }

  /// Whether the gradient is the slice.
  bool lies_in_slice(const at::Tensor& gradient) const;

  void set_view(at::Tensor slice_of_bucket) {
    view = std::move(slice_of_bucket);
    slice_.reset(); // the memory of the old bucket
  }

  /// The slice as a gradient for programs, which can move it away (`set_data`).
  const at::Tensor& slice();

  // The fields that a hook uses are adjacent in memory.
  at::Tensor tensor;
  /// The parameter's bucket and slice; sparse gradients have neither. Programs
  /// get `slice()`, which has the same version.
  size_t bucket = kNoBucket;
  at::Tensor view;
  /// The slice's version after the last reduction.
  int64_t version = -1;
  at::ScalarType dtype;
  c10::Device device;
  bool sparse;
  /// False if frozen since construction.
  bool trainable = false;
  /// Whether the parameter was found unfrozen after construction.
  bool unfrozen = false;
  /// Whether the gradient arrived in a backward pass inside another backward
  /// pass.
  bool nested = false;
  /// Whether the parameter got a gradient since the last reduction.
  bool used = false;
  /// The number of times that the gradient arrives in a backward pass (more
  /// than one with activation checkpointing); 0 until the first pass.
  int expected_arrivals = 0;
  std::vector<int64_t> sizes;

  // In this backward pass:
  int arrivals = 0;
  /// The engine's number of the newest backward pass in which the gradient
  /// arrived.
  int task = -1;
  GradState grad_state = GradState::kPending;
  /// A gradient with a graph (create_graph), whose values the mean will
  /// replace.
  at::Tensor with_graph;
  /// The earlier gradient, in case the parameter is globally unused.
  at::Tensor before;
  /// A sparse gradient in progress.
  c10::intrusive_ptr<c10::ivalue::Future> sparse_future;

  /// The name that the caller passed, or the index in a list of tensors.
  std::string key;

 private:
  at::Tensor slice_;

  static int64_t version_of(const at::Tensor& tensor) {
    return tensor.unsafeGetTensorImpl()->version_counter().current_version();
  }
};

/// Whether any of the parameters is not on the CPU.
bool any_on_device(const std::vector<ParameterState>& parameters);

} // namespace ddp::detail
