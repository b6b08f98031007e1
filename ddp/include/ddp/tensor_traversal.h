#pragma once

#include <ddp/internal/tensor_traversal.h>

namespace ddp {

/// Whether `visit_tensors` looks inside a `T` (ignoring references and const).
/// `visit_tensors` looks inside
///
/// - `at::Tensor`,
/// - `std::optional`, `vector`, `array`, `list`, `deque`, `pair`, `tuple`, and
///   the values of `map` and `unordered_map`,
/// - the values of `torch::OrderedDict`, `torch::data::Example`, and
///   `PackedSequence` except its batch sizes, which belong on the CPU,
/// - types of the program with a `visit_tensors` function (see `VisitTensors`),
///
/// and combinations of these. Elements that are const or references, and
/// pointers, are not visited.
template <typename T>
inline constexpr bool has_tensors_v = detail::Traversal<
    std::remove_cv_t<std::remove_reference_t<T>>>::kHasTensors;

/// Calls `visitor(tensor)` for each tensor inside `value`, in order, including
/// undefined ones. The visitor gets an `at::Tensor&`, which it may replace, or
/// a `const at::Tensor&` if `value` is const. Has no effect for a type without
/// tensors (`has_tensors_v`).
///
/// A struct is visited if it has a function `visit_tensors`, which passes each
/// member that may hold tensors to the visitor:
///
///     struct Sample {
///       at::Tensor image;
///       std::vector<at::Tensor> boxes;
///       std::string path;
///     };
///     template <typename Visitor>
///     void visit_tensors(Sample& sample, Visitor&& visitor) {
///       visitor(sample.image);
///       visitor(sample.boxes);
///     }
///
/// This function must be in the struct's namespace, or a friend defined inside
/// the struct, and visible where the struct is used. The function also serves
/// const values, with const tensors, so it must not change the struct itself.
struct VisitTensors {
  /// Calls `visitor` with each tensor inside `value`.
  template <typename T, typename Visitor>
  void operator()(T&& value, Visitor&& visitor) const {
    detail::traverse(value, visitor);
  }
};
/// Visits the tensors inside a value.
inline constexpr VisitTensors visit_tensors{};

} // namespace ddp
