#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/reducer_options.h>

#include <cstdint>
#include <vector>

namespace ddp::test {

/// The operation of a random net's node on a tensor of [rows, width].
enum class Operation {
  kLinear, ///< tanh(x W' + b)
  kScale, ///< multiplication by a parameter
  kShift, ///< addition of a weighted sum over a parameter of any shape
  kDetach, ///< the same tensor, detached
  kSequence, ///< the children in sequence
  kMean, ///< the mean of the children's results
  kBranch, ///< one of the children
  kCheckpoint, ///< the child, recomputed in the backward pass
};

/// A part of a random net.
struct Node {
  Operation operation = Operation::kSequence;
  /// Indices; several nodes may use the same parameter.
  std::vector<size_t> parameters;
  std::vector<Node> children;
  /// Identifies a branch.
  uint64_t number = 0;
};

enum class Shape { kMatrix, kVector, kScalar, kImage, kEmpty };
enum class Layout { kContiguous, kTransposed, kGapped };

struct ParameterDescription {
  Shape shape = Shape::kVector;
  Layout layout = Layout::kContiguous;
  at::ScalarType dtype = at::kFloat;
};

/// The change of a gradient between two steps.
enum class Handling { kNone, kZero, kKeep, kHalve, kReplace };

/// Forward passes, then one backward pass over all of them (or one over each).
struct Pass {
  bool synchronized = true;
  int forwards = 1;
  bool together = true;
  /// The number of times that each backward pass runs, over the retained graph.
  int repeats = 1;
  /// The rank that skips this pass, or -1.
  int64_t left_out = -1;
};

struct Step {
  std::vector<bool> frozen; ///< by parameter
  std::vector<Handling> handling; ///< by parameter
  std::vector<Pass> passes;
};

/// A random net and its steps.
struct Graph {
  uint64_t seed = 0;
  int64_t width = 1;
  std::vector<ParameterDescription> parameters;
  std::vector<bool> frozen; ///< at construction
  Node root;
  std::vector<Step> steps;
  ReducerOptions options;
  /// Whether ranks may use different parameters.
  bool by_rank = false;
  /// Whether a rank takes the same branches in each step.
  bool steady = false;
  /// Whether `finish_backward()` follows each backward pass; else each backward
  /// pass reaches a parameter.
  bool finish = false;
};

/// The random graph for a seed; `size` is the number of ranks.
Graph random_graph(uint64_t seed, int64_t size);

} // namespace ddp::test
