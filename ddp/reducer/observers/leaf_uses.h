#pragma once

#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace ddp::detail {

/// One use of a leaf tensor by an operation of the forward.
struct LeafUse {
  /// Which operation of the forward, counted over time.
  uint64_t place = 0;
  /// The name of its node, "AddmmBackward0".
  std::string operation;
  /// Whether only a parameter is used so.
  bool as_parameter = false;
};

/// Uses of each leaf, by the node that accumulates its gradient, in the order
/// of the forward.
using LeafUses =
    std::unordered_map<torch::autograd::Node*, std::vector<LeafUse>>;

/// Finds the uses of all leaves by `nodes`, the nodes of a graph. What only
/// changes a tensor's shape or dtype is passed over: a linear layer transposes
/// its weight first, and what uses the result is the use.
///
/// A use is a parameter's
/// - at the place of a weight or bias: of a convolution, a linear layer, an
///   embedding, a normalisation, a PReLU, a recurrent layer. (A product with a
///   transposed matrix is a linear layer, unless the other factor is a leaf
///   too: rows of one table against those of another.)
/// - in any other operation that broadcasts it, a vector, over all samples of
///   what comes out of a layer; not a single number, which may be there to be
///   differentiated by, no tensor of more dimensions, which may be handed on
///   from another part of the net, and no part that is put beside others. As
///   the second factor of a product of matrices, whatever its sizes.
LeafUses find_leaf_uses(
    const std::unordered_set<torch::autograd::Node*>& nodes);

/// Whether there are uses, and all are a parameter's. An input may be used
/// like a parameter in the middle of a net, but then at its beginning too.
bool are_of_a_parameter(const std::vector<LeafUse>& uses);

} // namespace ddp::detail
