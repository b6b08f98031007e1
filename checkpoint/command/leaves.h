#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace ddp::command {

/// A value that has no values in it, or an empty container.
struct Leaf {
  /// Its place, such as "optimizer.state.0.exp_avg"; no two are the same.
  std::string name;
  c10::IValue value;
};

/// The leaves of a tree in its order. With `whole_lists` a list or tuple of
/// nothing but numbers, texts and none is one.
std::vector<Leaf> leaves_of(const c10::IValue& tree, bool whole_lists);

/// How many of something there are, and the elements and bytes of the tensors.
struct Extent {
  uint64_t tensors = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
  void add(const at::Tensor& tensor);
};

/// That of all tensors in a tree.
Extent extent_of(const c10::IValue& tree);

} // namespace ddp::command
