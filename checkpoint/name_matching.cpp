#include <checkpoint/name_matching.h>

#include <algorithm>
#include <map>
#include <string_view>

namespace ddp::detail {
namespace {

using Names = std::vector<std::string>;

// The name without each `module.` in it.
std::string unwrapped_name(std::string_view name) {
  std::string result;
  for (;;) {
    const auto size = name.find('.') + 1; // of a child's name, with its dot
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

// In alphabetical order, which a prefix that all have does not change.
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

} // namespace ddp::detail
