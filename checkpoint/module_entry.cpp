#include <checkpoint/formats/tree_flatten.h>
#include <checkpoint/formats/values.h>
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

// Whether it is a dict with tensors, beside values of other types.
bool has_tensors(const c10::IValue& value) {
  if (!value.isGenericDict()) {
    return false;
  }
  const auto dict = value.toGenericDict();
  return std::all_of(
             dict.begin(),
             dict.end(),
             [](const auto& entry) { return entry.key().isString(); }) &&
      std::any_of(dict.begin(), dict.end(), [](const auto& entry) {
           return entry.value().isTensor() || has_tensors(entry.value());
         });
}

bool has_one_of(
    const std::vector<std::string>& wanted,
    const c10::IValue& entry) {
  const auto names = tree_flatten(entry).tensors.keys();
  return !match_names(wanted, names).pairs.empty();
}

// The names of entries that can be a module's state: those with one of its
// tensors or, if there is none, those of any tensors.
std::vector<std::string> candidates(
    const c10::IValue& content,
    const std::vector<std::string>& wanted) {
  std::vector<std::string> names, others;
  for (const auto& entry : content.toGenericDict()) {
    const auto& value = entry.value();
    if (!entry.key().isString()) {
      continue;
    }
    if (has_tensors(value) && has_one_of(wanted, value)) {
      names.push_back(entry.key().toStringRef());
    } else if (is_module(value) && !value.toGenericDict().empty()) {
      others.push_back(entry.key().toStringRef());
    }
  }
  return names.empty() ? others : names;
}

// Whether a dict that has other values too is itself a module's state.
bool is_state(
    const c10::IValue& content,
    const std::vector<std::string>& wanted,
    bool has_entries) {
  std::vector<std::string> names;
  for (const auto& entry : content.toGenericDict()) {
    if (entry.value().isTensor()) {
      names.push_back(entry.key().toStringRef());
    }
  }
  const auto match = match_names(wanted, names);
  return has_entries ? match.missing.empty() : !match.pairs.empty();
}

void append_others(
    const c10::IValue& dict,
    const std::string& place,
    std::vector<std::string>& others) {
  for_each_item(dict, [&](const c10::IValue& key, const c10::IValue& item) {
    if (item.isGenericDict()) {
      append_others(item, place_in(place, key), others);
    } else if (!item.isTensor()) {
      others.push_back(place_in(place, key));
    }
  });
}

ModuleEntry state_in(const c10::IValue& dict) {
  ModuleEntry result{tree_flatten(dict).tensors, {}};
  append_others(dict, "", result.others);
  return result;
}

bool fits(const c10::IValue& entry, const std::vector<std::string>& wanted) {
  const auto match = match_names(wanted, tree_flatten(entry).tensors.keys());
  return match.missing.empty() && match.unexpected.empty();
}

std::vector<std::string> usual_of(const std::vector<std::string>& names) {
  std::vector<std::string> usual;
  for (const auto& name : names) {
    if (std::count(kUsualNames.begin(), kUsualNames.end(), name) > 0) {
      usual.push_back(name);
    }
  }
  return usual;
}

std::string choose(
    const std::vector<std::string>& names,
    const std::vector<std::string>& omitted) {
  const auto usual = usual_of(names);
  if (usual.size() == 1) {
    return usual[0];
  }
  const auto unread = usual_of(omitted);
  DDP_CHECK_VALUE(
      names.empty() || unread.empty(),
      "the file's entry '{}' has a class that this library cannot read; save "
      "it as a dict, or select another entry by LoadOptions().entry(name)",
      unread.empty() ? "" : unread[0]);
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

ModuleEntry module_entry(
    const c10::IValue& content,
    const std::string& name,
    const std::vector<std::string>& wanted,
    const std::vector<std::string>& omitted) {
  DDP_CHECK_VALUE(
      content.isGenericDict(), "the file has no dict of named tensors");
  const auto dict = content.toGenericDict();
  const auto names = candidates(content, wanted);
  // The whole also matches if an entry has the name "module".
  const auto entry_fits = [&] {
    return std::any_of(names.begin(), names.end(), [&](const auto& each) {
      return fits(dict.at(each), wanted);
    });
  };
  if (name.empty() && is_module(content)) {
    const bool flat =
        std::any_of(dict.begin(), dict.end(), [](const auto& entry) {
          return entry.value().isTensor();
        });
    auto whole = state_in(content);
    const auto match = match_names(wanted, whole.tensors.keys());
    const bool matches = flat ? !match.pairs.empty() : match.missing.empty();
    if (names.empty() || (matches && !entry_fits())) {
      return whole;
    }
  } else if (
      name.empty() && has_tensors(content) && !entry_fits() &&
      is_state(content, wanted, /*has_entries=*/!names.empty())) {
    return state_in(content);
  }
  const auto chosen = name.empty() ? choose(names, omitted) : name;
  const auto entry = dict.find(chosen);
  DDP_CHECK_VALUE(
      entry != dict.end() &&
          (is_module(entry->value()) || has_tensors(entry->value())),
      "the file has no entry '{}' that is a dict of named tensors",
      chosen);
  return state_in(entry->value());
}

} // namespace ddp::detail
