#include <ddp/reducer/observers/unmanaged_leaves.h>

#include <ddp/internal/check.h>
#include <ddp/reducer/core/gradient_hook.h>

#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <tuple>

namespace ddp::detail {
namespace {

namespace autograd = torch::autograd;

/// Leaves that are managed without a hook, once for each of their Reducers.
struct LeavesWithoutHook {
  std::mutex mutex;
  std::multiset<const at::TensorImpl*> leaves;
};

LeavesWithoutHook& leaves_without_hook() {
  static auto& made = *new LeavesWithoutHook; // static Reducers end late
  return made;
}

bool is_managed(const at::Tensor& leaf) {
  const auto* listener = gradient_listener(leaf);
  if (listener && listener->is_of_use()) {
    return true;
  }
  auto& managed = leaves_without_hook();
  const std::lock_guard<std::mutex> lock(managed.mutex);
  return managed.leaves.count(leaf.unsafeGetTensorImpl()) > 0;
}

/// The number of inspected passes.
constexpr int64_t kInspected = 3;

// Enough to show the error; a model may have thousands of parameters.
constexpr size_t kMaxShown = 8;

struct Leaf {
  at::Tensor tensor;
  /// The operations of the forward pass that use the leaf, in their order.
  std::vector<autograd::Node*> uses;
};

using Leaves = std::unordered_map<autograd::Node*, Leaf>;

/// Whether the node transposes, as a linear layer does to its weight.
bool is_transposition(const autograd::Node* node) {
  return node && node->name() == "TBackward0";
}

/// Adds to the leaves the operations that use them, except transpositions.
void find_uses(
    const std::unordered_set<autograd::Node*>& nodes,
    Leaves& leaves) {
  for (auto* node : nodes) {
    for (size_t i = 0; i < node->num_outputs(); ++i) {
      auto* source = node->next_edge(i).function.get();
      while (is_transposition(source)) {
        source = source->next_edge(0).function.get();
      }
      const auto leaf = leaves.find(source);
      if (leaf != leaves.end() && !is_transposition(node)) {
        leaf->second.uses.push_back(node);
      }
    }
  }
  for (auto& [node, leaf] : leaves) {
    std::sort(leaf.uses.begin(), leaf.uses.end(), [](auto* a, auto* b) {
      return a->sequence_nr() < b->sequence_nr();
    });
  }
}

/// The number of the first operation that uses the leaf; 0: only the last
/// operation does.
uint64_t first_use(const Leaf& leaf) {
  return leaf.uses.empty() ? 0 : leaf.uses.front()->sequence_nr();
}

/// The leaf into which this backward pass accumulates at `node`, or null.
const at::Tensor* accumulated_leaf(autograd::Node* node) {
  const auto* accumulator = dynamic_cast<autograd::AccumulateGrad*>(node);
  // A leaf that was frozen after the forward pass is still in the graph.
  if (!accumulator || !accumulator->variable.requires_grad()) {
    return nullptr;
  }
  // autograd::grad() and backward(inputs) run only a part of the graph.
  const auto* selection = autograd::get_current_graph_task_exec_info();
  if (selection && !selection->empty()) {
    const auto selected = selection->find(node);
    if (selected == selection->end() || !selected->second.needed_) {
      return nullptr;
    }
  }
  return &accumulator->variable;
}

/// The leaves in the order in which the forward pass used them, which is the
/// order in the model's source and equal in each run.
std::vector<Leaf> in_order(std::vector<Leaf> leaves) {
  const auto key = [](const Leaf& leaf) {
    return std::make_tuple(
        leaf.uses.empty(), // used by the last operation
        first_use(leaf),
        -leaf.tensor.dim(), // weight before bias
        leaf.tensor.sizes().vec());
  };
  std::sort(leaves.begin(), leaves.end(), [&](const auto& a, const auto& b) {
    return key(a) < key(b);
  });
  return leaves;
}

/// The first items, and the number of remaining items.
std::string join_some(
    const std::vector<std::string>& items,
    const std::string& separator) {
  std::string text;
  for (size_t i = 0; i < std::min(items.size(), kMaxShown); ++i) {
    text += (i > 0 ? separator : "") + items[i];
  }
  if (items.size() > kMaxShown) {
    text += c10::str(separator, "... and ", items.size() - kMaxShown, " more");
  }
  return text;
}

std::string describe(const Leaf& leaf) {
  std::vector<std::string> operations;
  for (const auto* use : leaf.uses) {
    const auto name = use->name();
    if (std::find(operations.begin(), operations.end(), name) ==
        operations.end()) {
      operations.push_back(name);
    }
  }
  // The graph task does not include the node from which it starts.
  return detail::format(
      "{} {} on {}, used {}",
      leaf.tensor.scalar_type(),
      leaf.tensor.sizes(),
      leaf.tensor.device(),
      operations.empty() ? "where backward starts"
                         : "by " + join_some(operations, ", "));
}

/// Assigns a different parameter of the same dtype and sizes to each leaf, from
/// those that are free. Returns the names of these parameters, or nothing
/// unless all leaves have one. The first that fits is enough, since all
/// parameters that fit one leaf fit the same leaves.
std::vector<std::string> twins(
    const std::vector<Leaf>& leaves,
    const NamedTensors& parameters,
    std::vector<bool> free) {
  std::vector<bool> is_taken(free.size());
  for (const auto& leaf : leaves) {
    size_t i = 0;
    while (i < free.size() &&
           !(free[i] &&
             parameters.tensors[i].scalar_type() == leaf.tensor.scalar_type() &&
             parameters.tensors[i].sizes() == leaf.tensor.sizes())) {
      ++i;
    }
    if (i == free.size()) {
      return {};
    }
    free[i] = false;
    is_taken[i] = true;
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < is_taken.size(); ++i) {
    if (is_taken[i]) {
      names.push_back("'" + parameters.names[i] + "'");
    }
  }
  return names;
}

std::string report(
    const std::vector<Leaf>& leaves,
    const std::vector<std::string>& originals) {
  std::vector<std::string> lines;
  lines.reserve(leaves.size());
  for (const auto& leaf : leaves) {
    lines.push_back(describe(leaf));
  }
  std::string text =
      "these leaf tensors receive gradients in backward but belong to no "
      "Reducer, so the gradients are not averaged over ranks:\n  " +
      join_some(lines, "\n  ");
  if (!originals.empty()) {
    text += "\n  These tensors look like the originals of " +
        join_some(originals, ", ") +
        ", which this backward pass does not reach: does a cloned module still "
        "call a function that captured the original's `this`? Bind it again "
        "after clone().";
  }
  return text +
      "\n  If these tensors are parameters of modules in a plain std::vector "
      "or captured by a lambda: register the modules by register_module, or "
      "keep them in torch::nn::ModuleList or ModuleDict, before constructing "
      "the Reducer. Register bare tensors by register_parameter. For leaves "
      "that intentionally differ between ranks, use "
      "ReducerOptions().known_leaves({...}).";
}

} // namespace

UnmanagedLeaves::UnmanagedLeaves(
    NamedTensors parameters,
    const std::vector<at::Tensor>& known)
    : parameters_(std::move(parameters)) {
  for (const auto& tensor : parameters_.tensors) {
    settled_.emplace(tensor.getIntrusivePtr());
  }
  for (const auto& tensor : known) {
    settled_.emplace(tensor.getIntrusivePtr());
  }
}

/// Whether the backward pass of another forward pass has reached the leaf.
bool UnmanagedLeaves::is_met_again(const at::Tensor& leaf, uint64_t first_use) {
  const TensorSet::value_type pointer(leaf.getIntrusivePtr());
  const auto [met, is_new] = met_.emplace(pointer, first_use);
  return !is_new && (first_use == 0 || met->second != first_use);
}

std::string UnmanagedLeaves::inspect(
    const std::function<bool(const at::Tensor&)>& reduced_elsewhere) {
  const auto* nodes = autograd::get_current_graph_task_nodes_in_graph();
  if (!nodes) {
    return {};
  }
  std::unordered_set<const at::TensorImpl*> reached;
  Leaves unknown;
  for (auto* node : *nodes) {
    const auto* leaf = accumulated_leaf(node);
    if (!leaf || leaf->numel() == 0) {
      continue;
    }
    reached.insert(leaf->unsafeGetTensorImpl());
    const TensorSet::value_type pointer(leaf->getIntrusivePtr());
    if (settled_.count(pointer) == 0 && !reduced_elsewhere(*leaf)) {
      unknown[node].tensor = *leaf;
    }
  }
  if (unknown.empty()) {
    return {};
  }
  find_uses(*nodes, unknown);
  std::vector<Leaf> leaves;
  for (auto& [node, leaf] : unknown) {
    if (is_met_again(leaf.tensor, first_use(leaf))) {
      settled_.emplace(leaf.tensor.getIntrusivePtr());
      leaves.push_back(std::move(leaf));
    }
  }
  if (leaves.empty()) {
    return {};
  }
  std::vector<bool> unreached;
  for (const auto& tensor : parameters_.tensors) {
    unreached.push_back(reached.count(tensor.unsafeGetTensorImpl()) == 0);
  }
  const auto ordered = in_order(std::move(leaves));
  return report(ordered, twins(ordered, parameters_, unreached));
}

void set_managed_without_hook(const at::Tensor& leaf, bool managed) {
  auto& [mutex, leaves] = leaves_without_hook();
  const std::lock_guard<std::mutex> lock(mutex);
  if (managed) {
    leaves.insert(leaf.unsafeGetTensorImpl());
    return;
  }
  const auto found = leaves.find(leaf.unsafeGetTensorImpl());
  if (found != leaves.end()) {
    leaves.erase(found);
  }
}

LeafReport::LeafReport(UnmanagedLeaves leaves, Severity severity)
    : leaves_(std::move(leaves)), severity_(severity) {}

void LeafReport::on_backward() {
  if (!leaves_) {
    return;
  }
  const auto report = leaves_->inspect(is_managed);
  if (++backwards_ == kInspected) {
    leaves_.reset();
  }
  if (!report.empty()) {
    tell(report);
  }
}

void LeafReport::on_frozen_forward(const std::function<NamedTensors()>& added) {
  if (frozen_forwards_ == kInspected) {
    return;
  }
  ++frozen_forwards_;
  const auto names = added().names;
  if (!names.empty()) {
    frozen_forwards_ = kInspected; // once
    tell(
        "these parameters require gradients but belong to no Reducer, so the "
        "gradients are not averaged over ranks: " +
        join_some(names, ", ") +
        ". Construct the Reducer after the module has all layers. For "
        "parameters that intentionally differ between ranks, use "
        "ReducerOptions().known_leaves({...}).");
  }
}

void LeafReport::tell(const std::string& report) const {
  DDP_CHECK(severity_ == Severity::kWarn, report);
  TORCH_WARN("ddp: ", report);
}

} // namespace ddp::detail
