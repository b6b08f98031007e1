#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace ddp::command {

/// A value that is not a container, or an empty container.
struct Leaf {
  /// The leaf's unique path, such as "optimizer.state.0.exp_avg".
  std::string name;
  c10::IValue value;
};

/// The leaves of a tree, in the tree's order. With `whole_lists`, a list or
/// tuple that contains only numbers, strings and none values is one leaf.
std::vector<Leaf> leaves_of(const c10::IValue& tree, bool whole_lists);

/// The numbers of tensors, elements and bytes.
struct Extent {
  uint64_t tensors = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
  void add(const at::Tensor& tensor);
};

/// The extent of all tensors in a tree.
Extent extent_of(const c10::IValue& tree);

} // namespace ddp::command
