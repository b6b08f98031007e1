#include <checkpoint/module_copies.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>
#include <checkpoint/state_dict.h>
#include <ddp/internal/check.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string_view>

namespace ddp::detail {
namespace {

using Names = std::vector<std::string>;

// The name without any `module.`.
std::string unwrapped_name(std::string_view name) {
  std::string result;
  for (;;) {
    const auto size = name.find('.') + 1; // the child's name and the dot
    if (size == 0) {
      return result.append(name);
    }
    const auto child = name.substr(0, size);
    if (child != "module.") {
      result += child;
    }
    name.remove_prefix(size);
  }
}

// Groups the names, in alphabetical order, which a common prefix keeps.
std::map<std::string, Names> by_unwrapped_name(Names names) {
  std::sort(names.begin(), names.end());
  std::map<std::string, Names> groups;
  for (auto& name : names) {
    groups[unwrapped_name(name)].push_back(std::move(name));
  }
  return groups;
}

void append(Names& list, const Names& more) {
  list.insert(list.end(), more.begin(), more.end());
}

// LibTorch's `to(kHalf)` also converts batch-norm's counter to half precision.
bool is_whole_number(const at::Tensor& tensor) {
  if (tensor.numel() != 1 || !tensor.is_floating_point()) {
    return false;
  }
  const auto number = tensor.item<double>();
  return std::isfinite(number) && number == std::floor(number);
}

// As in Python, a file may lack the counters of its batch-norms, and the module
// then keeps its own: earlier versions of PyTorch had none. Files of Hugging
// Face have one name of a tensor with several, such as tied weights.
void ignore_optional_names(const StateDict& state, NameMatch& match) {
  const auto is_in_file = [&](const std::string& name) {
    const auto* tensor = state.find(name);
    return tensor != nullptr &&
        std::any_of(
               match.pairs.begin(), match.pairs.end(), [&](const auto& pair) {
                 return state[pair.first].is_same(*tensor);
               });
  };
  const auto is_optional = [&](const std::string& name) {
    const auto child = name.rfind('.') + 1; // 0 if there is no dot
    return is_in_file(name) ||
        (name.substr(child) == "num_batches_tracked" &&
         is_in_file(name.substr(0, child) + "running_mean"));
  };
  auto& missing = match.missing;
  missing.erase(
      std::remove_if(missing.begin(), missing.end(), is_optional),
      missing.end());
}

// One error lists everything that does not fit.
void list_names(
    std::ostream& misfits,
    const char* what,
    const std::vector<std::string>& names) {
  for (const auto& name : names) {
    misfits << "\n  " << what << ": " << name;
  }
}

void check_fit(
    std::ostream& misfits,
    const std::string& name,
    const at::Tensor& target,
    const at::Tensor& source) {
  if (target.sizes() != source.sizes()) {
    misfits << "\n  wrong shape: " << name << " is " << source.sizes()
            << " in the file, " << target.sizes() << " in the module";
  }
  if (!c10::canCast(source.scalar_type(), target.scalar_type()) &&
      !is_whole_number(source)) {
    misfits << "\n  wrong dtype: " << name << " is " << source.scalar_type()
            << " in the file, " << target.scalar_type() << " in the module";
  }
}

} // namespace

NameMatch match_names(const Names& module_names, const Names& file_names) {
  NameMatch result;
  auto in_file = by_unwrapped_name(file_names);
  for (const auto& [unwrapped, names] : by_unwrapped_name(module_names)) {
    auto& found = in_file[unwrapped];
    if (names.size() == found.size()) {
      for (size_t i = 0; i < names.size(); ++i) {
        result.pairs.emplace_back(names[i], found[i]);
      }
      found.clear();
    } else {
      append(result.missing, names);
    }
  }
  for (const auto& [unwrapped, names] : in_file) {
    append(result.unexpected, names);
  }
  return result;
}

Copies plan_copies(
    const std::string& source,
    const StateDict& tensors,
    const torch::nn::Module& module,
    IncompatibleKeys* keys,
    const Names& others) {
  const auto state = named_state(module);
  auto match = match_names(state.keys(), tensors.keys());
  ignore_optional_names(state, match);
  append(match.unexpected, others);
  std::ostringstream misfits;
  if (keys == nullptr || match.pairs.empty()) {
    list_names(misfits, "missing in the file", match.missing);
    list_names(misfits, "unexpected in the file", match.unexpected);
  } else {
    *keys = {match.missing, match.unexpected};
  }
  Copies copies;
  for (const auto& [module_name, saved_name] : match.pairs) {
    copies.emplace_back(state[module_name], tensors[saved_name]);
    check_fit(misfits, module_name, copies.back().first, copies.back().second);
  }
  DDP_CHECK(
      misfits.str().empty(),
      "{} does not fit the module, which is unchanged; was it saved from "
      "another network?{}",
      source,
      misfits.str());
  return copies;
}

void make_copies(const Copies& copies) {
  const at::NoGradGuard no_grad;
  for (const auto& [target, saved] : copies) {
    target.copy_(saved.to(target.scalar_type())); // not on a GPU
  }
}

} // namespace ddp::detail
