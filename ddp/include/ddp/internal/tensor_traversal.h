#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

// LibTorch's types are only declared: users of a type include its header.
namespace torch {
template <typename Key, typename Value>
class OrderedDict;
namespace data {
template <typename Data, typename Target>
struct Example;
}
namespace nn::utils::rnn {
class PackedSequence;
}
} // namespace torch

namespace ddp::detail {

/// Visits the tensors inside a `T`: `kHasTensors` is whether a `T` may contain
/// tensors, and `visit(value, visitor)` visits them. See `ddp::visit_tensors`.
template <typename T>
struct Traversal;

template <typename T, typename Visitor>
void traverse(T& value, Visitor& visitor) {
  using Parts = Traversal<std::remove_const_t<T>>;
  if constexpr (Parts::kHasTensors) {
    Parts::visit(value, visitor);
  }
}

/// The visitor that a program's `visit_tensors` receives. The visitor accepts
/// any member, and visits the member as const if `Owner` is const.
template <typename Visitor, typename Owner>
struct MemberVisitor {
  Visitor& visitor;

  template <typename Member>
  void operator()(Member& member) const {
    using Seen =
        std::conditional_t<std::is_const_v<Owner>, const Member, Member>;
    traverse<Seen>(member, visitor);
  }
};

namespace customization {

void visit_tensors() = delete; // hides the object `ddp::visit_tensors`

struct Ignore {
  template <typename Member>
  void operator()(Member& /*member*/) const {}
};

template <typename T, typename = void>
struct Exists : std::false_type {};
template <typename T>
struct Exists<
    T,
    std::void_t<decltype(visit_tensors(
        std::declval<T&>(),
        std::declval<const Ignore&>()))>> : std::true_type {};

template <typename T, typename Visitor>
void call(T& value, const Visitor& visitor) {
  visit_tensors(value, visitor);
}

} // namespace customization

template <typename T>
struct Traversal {
  static constexpr bool kHasTensors = customization::Exists<T>::value;

  template <typename Self, typename Visitor>
  static void visit(Self& value, Visitor& visitor) {
    const MemberVisitor<Visitor, Self> members{visitor};
    if constexpr (customization::Exists<Self>::value) {
      customization::call(value, members);
    } else {
      customization::call(const_cast<T&>(value), members);
    }
  }
};

/// Const and reference types are not visited, since their tensors could not be
/// replaced in a copy of the object that contains them.
struct NoTensors {
  static constexpr bool kHasTensors = false;
};
template <typename T>
struct Traversal<const T> : NoTensors {};
template <typename T>
struct Traversal<T&> : NoTensors {};
template <typename T>
struct Traversal<T&&> : NoTensors {};

template <>
struct Traversal<at::Tensor> {
  static constexpr bool kHasTensors = true;

  template <typename Self, typename Visitor>
  static void visit(Self& tensor, Visitor& visitor) {
    visitor(tensor);
  }
};

template <typename Element>
struct RangeTraversal {
  static constexpr bool kHasTensors = Traversal<Element>::kHasTensors;

  template <typename Self, typename Visitor>
  static void visit(Self& range, Visitor& visitor) {
    for (auto& element : range) {
      traverse(element, visitor);
    }
  }
};
template <typename T, typename Allocator>
struct Traversal<std::vector<T, Allocator>> : RangeTraversal<T> {};
template <typename T, typename Allocator>
struct Traversal<std::list<T, Allocator>> : RangeTraversal<T> {};
template <typename T, typename Allocator>
struct Traversal<std::deque<T, Allocator>> : RangeTraversal<T> {};
template <typename T, std::size_t size>
struct Traversal<std::array<T, size>> : RangeTraversal<T> {};

template <typename T>
struct Traversal<std::optional<T>> {
  static constexpr bool kHasTensors = Traversal<T>::kHasTensors;

  template <typename Self, typename Visitor>
  static void visit(Self& optional, Visitor& visitor) {
    if (optional) {
      traverse(*optional, visitor);
    }
  }
};

template <typename... Elements>
struct TupleTraversal {
  static constexpr bool kHasTensors = (Traversal<Elements>::kHasTensors || ...);

  template <typename Self, typename Visitor>
  static void visit(Self& tuple, Visitor& visitor) {
    std::apply(
        [&](auto&... elements) { (element<Elements>(elements, visitor), ...); },
        tuple);
  }

 private:
  // Visits a value if its declared type, which may be a reference, has tensors.
  template <typename Declared, typename T, typename Visitor>
  static void element(T& value, Visitor& visitor) {
    if constexpr (Traversal<Declared>::kHasTensors) {
      traverse(value, visitor);
    }
  }
};
template <typename First, typename Second>
struct Traversal<std::pair<First, Second>> : TupleTraversal<First, Second> {};
template <typename... Elements>
struct Traversal<std::tuple<Elements...>> : TupleTraversal<Elements...> {};

template <typename Key, typename Value, typename... Rest>
struct Traversal<std::map<Key, Value, Rest...>>
    : RangeTraversal<std::pair<const Key, Value>> {};
template <typename Key, typename Value, typename... Rest>
struct Traversal<std::unordered_map<Key, Value, Rest...>>
    : RangeTraversal<std::pair<const Key, Value>> {};

template <typename Key, typename Value>
struct Traversal<torch::OrderedDict<Key, Value>> {
  static constexpr bool kHasTensors = Traversal<Value>::kHasTensors;

  template <typename Self, typename Visitor>
  static void visit(Self& dictionary, Visitor& visitor) {
    for (auto& item : dictionary) {
      traverse(item.value(), visitor);
    }
  }
};

template <typename Data, typename Target>
struct Traversal<torch::data::Example<Data, Target>> {
  static constexpr bool kHasTensors =
      Traversal<Data>::kHasTensors || Traversal<Target>::kHasTensors;

  template <typename Self, typename Visitor>
  static void visit(Self& example, Visitor& visitor) {
    traverse(example.data, visitor);
    if constexpr (Traversal<Target>::kHasTensors) { // `Target` may be void
      traverse(example.target, visitor);
    }
  }
};

/// The `batch_sizes` are not visited, since they belong on the CPU.
template <>
struct Traversal<torch::nn::utils::rnn::PackedSequence> {
  static constexpr bool kHasTensors = true;

  template <typename Self, typename Visitor>
  static void visit(Self& sequence, Visitor& visitor) {
    if constexpr (std::is_const_v<Self>) {
      visitor(sequence.data());
      visitor(sequence.sorted_indices());
      visitor(sequence.unsorted_indices());
    } else {
      auto data = sequence.data();
      auto sorted = sequence.sorted_indices();
      auto unsorted = sequence.unsorted_indices();
      visitor(data);
      visitor(sorted);
      visitor(unsorted);
      sequence = Self(data, sequence.batch_sizes(), sorted, unsorted);
    }
  }
};

} // namespace ddp::detail
