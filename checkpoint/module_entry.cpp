#include <checkpoint/formats/tree_flatten.h>
#include <checkpoint/module_copies.h>
#include <checkpoint/module_entry.h>
#include <ddp/internal/check.h>

#include <algorithm>
#include <array>

namespace ddp::detail {
namespace {

constexpr std::array kUsualNames{
    "model",
    "state_dict",
    "model_state_dict",
    "module",
    "net"};

// LibTorch writes nested dicts.
bool is_module(const c10::IValue& value) {
  if (!value.isGenericDict()) {
    return false;
  }
  const auto dict = value.toGenericDict();
  return std::all_of(dict.begin(), dict.end(), [](const auto& entry) {
    return entry.key().isString() &&
        (entry.value().isTensor() || is_module(entry.value()));
  });
}

// The names of entries that can be a module's tensors.
std::vector<std::string> candidates(const c10::IValue& content) {
  std::vector<std::string> names;
  for (const auto& entry : content.toGenericDict()) {
    if (entry.key().isString() && is_module(entry.value()) &&
        !entry.value().toGenericDict().empty()) {
      names.push_back(entry.key().toStringRef());
    }
  }
  return names;
}

bool fits(const c10::IValue& entry, const std::vector<std::string>& wanted) {
  const auto match = match_names(wanted, tree_flatten(entry).tensors.keys());
  return match.missing.empty() && match.unexpected.empty();
}

std::string choose(std::vector<std::string> names) {
  if (names.size() > 1) {
    std::vector<std::string> usual;
    for (const auto& name : names) {
      if (std::count(kUsualNames.begin(), kUsualNames.end(), name) > 0) {
        usual.push_back(name);
      }
    }
    if (usual.size() == 1) {
      return usual[0];
    }
  }
  std::string list;
  for (const auto& name : names) {
    list += "\n  " + name;
  }
  DDP_CHECK_VALUE(
      names.size() == 1,
      "the file has {} entries that can be a module's tensors; select one of "
      "them by LoadOptions().entry(name){}",
      names.size(),
      list);
  return names[0];
}

} // namespace

StateDict module_entry(
    const c10::IValue& content,
    const std::string& name,
    const std::vector<std::string>& wanted) {
  DDP_CHECK_VALUE(
      content.isGenericDict(), "the file has no dict of named tensors");
  const auto dict = content.toGenericDict();
  auto names = candidates(content);
  if (name.empty() && is_module(content)) {
    const bool flat =
        std::any_of(dict.begin(), dict.end(), [](const auto& entry) {
          return entry.value().isTensor();
        });
    auto whole = tree_flatten(content).tensors;
    const auto match = match_names(wanted, whole.keys());
    const bool matches = flat ? !match.pairs.empty() : match.missing.empty();
    // The whole also matches if an entry has the name "module".
    const bool entry_fits =
        std::any_of(names.begin(), names.end(), [&](const auto& each) {
          return fits(dict.at(each), wanted);
        });
    if (names.empty() || (matches && !entry_fits)) {
      return whole;
    }
  }
  const auto chosen = name.empty() ? choose(std::move(names)) : name;
  const auto entry = dict.find(chosen);
  DDP_CHECK_VALUE(
      entry != dict.end() && is_module(entry->value()),
      "the file has no entry '{}' that is a dict of named tensors",
      chosen);
  return tree_flatten(entry->value()).tensors;
}

} // namespace ddp::detail
