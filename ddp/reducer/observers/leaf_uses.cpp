#include <ddp/reducer/observers/leaf_uses.h>

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>

namespace ddp::detail {
namespace {

namespace autograd = torch::autograd;

using autograd::Edge;
using autograd::Node;

/// The first and the last of a node's inputs that are parameters.
struct Places {
  size_t first;
  size_t last;
};

/// Where parameters are among the inputs of an operation, by its name.
const std::unordered_map<std::string, Places>& parameter_places() {
  static const std::unordered_map<std::string, Places> places{
      {"ConvolutionBackward0", {1, 2}},
      {"LinearBackward0", {1, 2}},
      {"NativeBatchNormBackward0", {1, 2}},
      {"CudnnBatchNormBackward0", {1, 2}},
      {"MiopenBatchNormBackward0", {1, 2}},
      {"NativeGroupNormBackward0", {1, 2}},
      {"NativeLayerNormBackward0", {1, 2}},
      {"FusedRmsNormBackward0", {1, 1}},
      {"EmbeddingBackward0", {0, 0}},
      {"EmbeddingBagBackward0", {0, 0}},
      {"PreluKernelBackward0", {1, 1}},
      {"MkldnnRnnLayerBackward0", {1, 4}},
      {"ThnnFusedLstmCellBackward0", {3, 4}},
      {"ThnnFusedGruCellBackward0", {3, 4}}};
  return places;
}

/// Whether the node only changes the shape or the dtype of its one input.
bool is_only_reshaping(const Node& node) {
  static const std::unordered_set<std::string> names{
      "TBackward0",
      "TransposeBackward0",
      "PermuteBackward0",
      "ViewBackward0",
      "UnsafeViewBackward0",
      "ReshapeAliasBackward0",
      "UnsqueezeBackward0",
      "SliceBackward0",
      "SelectBackward0",
      "RepeatBackward0",
      "ToCopyBackward0"};
  return node.num_outputs() == 1 && names.count(node.name()) != 0;
}

bool is_transposition(const Node& node) {
  return node.name() == "TBackward0" || node.name() == "TransposeBackward0";
}

/// What an edge leads to behind nodes that only reshape.
struct Source {
  Node* node = nullptr;
  bool transposed = false;

  explicit Source(const Edge& edge) : node(edge.function.get()) {
    while (node && is_only_reshaping(*node)) {
      transposed = transposed != is_transposition(*node);
      node = node->next_edge(0).function.get();
    }
  }
  bool is_leaf() const {
    return dynamic_cast<autograd::AccumulateGrad*>(node) != nullptr;
  }
};

/// Nothing for a nested tensor.
std::vector<c10::SymInt> sizes_of(const autograd::InputMetadata& tensor) {
  if (tensor.is_nested_tensor()) {
    return {};
  }
  return tensor.shape_as_dim_vector().vec();
}

/// A graph in the order of its forward, and what the rules below need of it.
class Forward {
 public:
  explicit Forward(const std::unordered_set<Node*>& nodes)
      : nodes_(nodes.begin(), nodes.end()) {
    std::sort(nodes_.begin(), nodes_.end(), [](Node* a, Node* b) {
      return a->sequence_nr() < b->sequence_nr();
    });
  }

  LeafUses uses() {
    LeafUses uses;
    for (auto* node : nodes_) {
      if (is_only_reshaping(*node)) {
        continue;
      }
      const auto name = node->name();
      for (size_t i = 0; i < node->num_outputs(); ++i) {
        const Source source(node->next_edge(i));
        const bool in_layer = source.is_leaf() && is_in_layer(*node, name, i);
        if (in_layer || behind_layers_.count(source.node) != 0) {
          behind_layers_.insert(node);
        }
        if (source.is_leaf()) {
          uses[source.node].push_back(
              {node->sequence_nr(),
               name,
               in_layer || is_joined_to_layer(*node, name, i)});
        }
      }
    }
    return uses;
  }

 private:
  /// Whether input `i` is at the place of a layer's weight or bias.
  static bool is_in_layer(const Node& node, const std::string& name, size_t i) {
    if (name == "AddmmBackward0" && i == 0) {
      return sizes_of(metadata(node, 0)).size() == 1;
    }
    if (is_second_factor(name, i)) {
      return Source(node.next_edge(i)).transposed &&
          !Source(node.next_edge(i - 1)).is_leaf();
    }
    if (name == "CudnnRnnBackward0") { // input, weights, two states
      return i >= 1 && i + 2 < node.num_outputs();
    }
    const auto places = parameter_places().find(name);
    return places != parameter_places().end() && i >= places->second.first &&
        i <= places->second.last;
  }

  bool is_joined_to_layer(const Node& node, const std::string& name, size_t i)
      const {
    if (is_second_factor(name, i)) {
      return is_behind_layer(node.next_edge(i - 1));
    }
    if (is_product(name) || parameter_places().count(name) != 0 ||
        name == "CudnnRnnBackward0" || name == "CatBackward0" ||
        name == "StackBackward0" || !is_broadcast(node, i)) {
      return false;
    }
    for (size_t other = 0; other < node.num_outputs(); ++other) {
      if (other != i && is_behind_layer(node.next_edge(other))) {
        return true;
      }
    }
    return false;
  }

  bool is_behind_layer(const Edge& edge) const {
    return behind_layers_.count(Source(edge).node) != 0;
  }

  static bool is_product(const std::string& name) {
    return name == "AddmmBackward0" || name == "MmBackward0";
  }
  static bool is_second_factor(const std::string& name, size_t i) {
    return is_product(name) && i == (name == "MmBackward0" ? 1 : 2);
  }

  static const autograd::InputMetadata& metadata(const Node& node, size_t i) {
    const auto& edge = node.next_edge(i);
    return edge.function->input_metadata(edge.input_nr);
  }

  /// Whether input `i` is one vector for all samples of what comes out.
  static bool is_broadcast(const Node& node, size_t i) {
    const auto input = sizes_of(metadata(node, i));
    const auto output = sizes_of(node.input_metadata(0));
    const auto wide = std::count_if(
        input.begin(), input.end(), [](const auto& size) { return size != 1; });
    return wide == 1 &&
        (input.size() < output.size() ||
         (input.size() == output.size() && input.front() == 1 &&
          output.front() != 1));
  }

  std::vector<Node*> nodes_;
  /// Operations whose result depends on that of a layer.
  std::unordered_set<Node*> behind_layers_;
};

} // namespace

LeafUses find_leaf_uses(const std::unordered_set<Node*>& nodes) {
  return Forward(nodes).uses();
}

bool are_of_a_parameter(const std::vector<LeafUse>& uses) {
  return !uses.empty() &&
      std::all_of(uses.begin(), uses.end(), [](const LeafUse& use) {
        return use.as_parameter;
      });
}

} // namespace ddp::detail
