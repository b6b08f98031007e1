#include <ddp/reducer/core/target_state.h>

#include <ddp/internal/check.h>

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <unordered_set>

namespace ddp::detail {
namespace {

using Names = std::set<std::string>;

bool contains(const NamedTensors& tensors, const std::string& name) {
  return std::find(tensors.names.begin(), tensors.names.end(), name) !=
      tensors.names.end();
}

/// Returns each tensor once, without those of the ignored names.
NamedTensors without(const NamedTensors& tensors, const Names& ignored) {
  NamedTensors result;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (size_t i = 0; i < tensors.names.size(); ++i) {
    if (ignored.count(tensors.names[i]) == 0 &&
        seen.insert(tensors.tensors[i].unsafeGetTensorImpl()).second) {
      result.append(tensors.names[i], tensors.tensors[i]);
    }
  }
  return result;
}

void check_names(
    const char* option,
    const Names& names,
    const NamedTensors& parameters,
    const NamedTensors& buffers) {
  for (const auto& name : names) {
    DDP_CHECK_VALUE(
        contains(parameters, name) || contains(buffers, name),
        "{}: no parameter or buffer is named '{}'; the module has {} "
        "parameters, such as '{}', and {} buffers",
        option,
        name,
        parameters.names.size(),
        parameters.names.empty() ? "" : parameters.names.front(),
        buffers.names.size());
  }
}

void check_layouts(const NamedTensors& buffers) {
  for (size_t i = 0; i < buffers.names.size(); ++i) {
    const auto layout = buffers.tensors[i].layout();
    DDP_CHECK_VALUE(
        layout == at::kStrided,
        "the buffer {} has the layout {} and cannot be broadcast: name it in "
        "parameters_to_ignore, or set broadcast_buffers(false)",
        buffers.names[i],
        layout);
  }
}

TargetState make_state(
    const NamedTensors& parameters,
    const Names& sparse,
    std::function<NamedTensors()> buffers,
    const ReducerOptions& options) {
  const auto& ignored = options.parameters_to_ignore();
  const auto present = buffers();
  check_names("parameters_to_ignore", ignored, parameters, present);
  check_names("sparse_parameters", options.sparse_parameters(), parameters, {});
  if (options.broadcast_buffers()) {
    check_layouts(without(present, ignored));
  }
  TargetState state;
  state.parameters = without(parameters, ignored);
  for (size_t i = 0; i < parameters.names.size(); ++i) {
    if (ignored.count(parameters.names[i]) > 0) {
      state.ignored.push_back(parameters.tensors[i]);
    }
  }
  for (const auto& name : state.parameters.names) {
    state.sparse.push_back(
        sparse.count(name) > 0 || options.sparse_parameters().count(name) > 0);
  }
  state.buffers = [buffers = std::move(buffers), ignored] {
    return without(buffers(), ignored);
  };
  return state;
}

/// The weights of embeddings that were made with `sparse(true)`.
Names sparse_weights(const torch::nn::Module& module) {
  Names names;
  const auto look_at = [&](const std::string& prefix,
                           const torch::nn::Module& part) {
    const auto* embedding = part.as<torch::nn::EmbeddingImpl>();
    const auto* bag = part.as<torch::nn::EmbeddingBagImpl>();
    if ((embedding && embedding->options.sparse()) ||
        (bag && bag->options.sparse())) {
      names.insert(prefix + "weight");
    }
  };
  look_at("", module); // may be on the stack, without a shared_ptr
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    look_at(item.key() + ".", *item.value());
  }
  return names;
}

/// The parameters of a module, each once per registration.
NamedTensors named_parameters(const torch::nn::Module& module) {
  NamedTensors result;
  for (const auto& item : module.named_parameters()) {
    result.append(item.key(), item.value());
  }
  return result;
}

template <typename Items>
NamedTensors named(const Items& items) {
  NamedTensors result;
  for (const auto& item : items) {
    if (item.value.defined()) {
      result.append(item.name, item.value);
    }
  }
  return result;
}

TargetState state_of(
    const torch::nn::Module& module,
    const ReducerOptions& options) {
  auto state = make_state(
      named_parameters(module),
      sparse_weights(module),
      [&module] { return unique_buffers(module); },
      options);
  state.current = [&module, ignored = options.parameters_to_ignore()] {
    return without(named_parameters(module), ignored);
  };
  return state;
}

TargetState state_of(
    const std::shared_ptr<torch::nn::Module>& module,
    const ReducerOptions& options) {
  DDP_CHECK_VALUE(module, "Reducer: the module is null");
  std::weak_ptr<torch::nn::Module> weak = module; // it may own the Reducer
  auto state = state_of(*module, options);
  const auto while_alive = [weak](std::function<NamedTensors()> tensors) {
    return [weak, tensors = std::move(tensors)] {
      const auto alive = weak.lock();
      return alive ? tensors() : NamedTensors();
    };
  };
  state.buffers = while_alive(std::move(state.buffers));
  state.current = while_alive(std::move(state.current));
  state.owned = weak;
  return state;
}

TargetState state_of(
    const torch::jit::Module& module,
    const ReducerOptions& options) {
  return make_state(
      named(module.named_parameters(/*recurse=*/true)),
      {},
      [module] { return named(module.named_buffers(/*recurse=*/true)); },
      options);
}

TargetState state_of(
    const torch::OrderedDict<std::string, at::Tensor>& parameters,
    const ReducerOptions& options) {
  for (const auto& item : parameters) {
    const auto& tensor = item.value();
    DDP_CHECK_VALUE(
        tensor.defined() && tensor.is_leaf() && tensor.requires_grad(),
        "parameter {} is not a leaf tensor that requires a gradient",
        item.key());
  }
  return make_state(
      {parameters.keys(), parameters.values()},
      {},
      [] { return NamedTensors(); },
      options);
}

/// Names each tensor by its index.
torch::OrderedDict<std::string, at::Tensor> number(
    const std::vector<at::Tensor>& tensors) {
  torch::OrderedDict<std::string, at::Tensor> result;
  for (const auto& tensor : tensors) {
    result.insert(std::to_string(result.size()), tensor);
  }
  return result;
}

template <typename Model>
auto managing(const Model& model) {
  return [model](const ReducerOptions& options) {
    return state_of(model, options);
  };
}

} // namespace

ReducerTarget::ReducerTarget(const std::shared_ptr<torch::nn::Module>& module)
    : state_(managing(module)) {}

ReducerTarget::ReducerTarget(torch::nn::Module& module)
    : state_(managing(std::cref(module))) {}

ReducerTarget::ReducerTarget(const torch::jit::Module& module)
    : state_(managing(module)) {}

ReducerTarget::ReducerTarget(
    const torch::OrderedDict<std::string, at::Tensor>& parameters)
    : state_(managing(parameters)) {}

ReducerTarget::ReducerTarget(const std::vector<at::Tensor>& parameters)
    : ReducerTarget(number(parameters)) {}

ReducerTarget::ReducerTarget(std::initializer_list<at::Tensor> parameters)
    : ReducerTarget(std::vector<at::Tensor>(parameters)) {}

TargetState ReducerTarget::state(const ReducerOptions& options) const {
  return state_(options);
}

} // namespace ddp::detail
