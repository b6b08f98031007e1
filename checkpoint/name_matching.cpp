#include <checkpoint/name_matching.h>

#include <algorithm>
#include <map>
#include <string_view>

namespace ddp::detail {
namespace {

constexpr std::string_view kWrapper = "module.";

// A name, and what is left of it to compare.
struct Name {
  const std::string* whole;
  std::string_view rest;
};

using Names = std::vector<Name>;

Names whole_names(const std::vector<std::string>& names) {
  Names result;
  for (const auto& name : names) {
    result.push_back({&name, name});
  }
  return result;
}

bool all_wrapped(const Names& names) {
  return std::all_of(names.begin(), names.end(), [](const Name& name) {
    return name.rest.substr(0, kWrapper.size()) == kWrapper;
  });
}

void unwrap(Names& names) {
  for (auto& name : names) {
    name.rest.remove_prefix(kWrapper.size());
  }
}

// By first component. Its dot belongs to it, which keeps "a" and "a.b" apart.
std::map<std::string_view, Names> by_child(const Names& names) {
  std::map<std::string_view, Names> groups;
  for (const auto& [whole, rest] : names) {
    const auto dot = rest.find('.');
    const auto size = dot == rest.npos ? rest.size() : dot + 1;
    groups[rest.substr(0, size)].push_back({whole, rest.substr(size)});
  }
  return groups;
}

void append(const Names& names, std::vector<std::string>& list) {
  for (const auto& name : names) {
    list.push_back(*name.whole);
  }
}

void match(Names module, Names file, NameMatch& result) {
  while (!module.empty() && !file.empty()) {
    const bool file_wrapped = all_wrapped(file);
    if (file_wrapped == all_wrapped(module)) {
      break; // where both are, the module has a child of that name
    }
    unwrap(file_wrapped ? file : module);
  }
  auto file_children = by_child(file);
  for (auto& [child, names] : by_child(module)) {
    const auto found = file_children.find(child);
    if (found == file_children.end()) {
      append(names, result.missing);
    } else if (child.empty() || child.back() != '.') { // a tensor, no child
      result.pairs.emplace_back(
          *names.front().whole, *found->second.front().whole);
      file_children.erase(found);
    } else {
      match(std::move(names), std::move(found->second), result);
      file_children.erase(found);
    }
  }
  for (const auto& [child, names] : file_children) {
    append(names, result.unexpected);
  }
}

} // namespace

NameMatch match_names(
    const std::vector<std::string>& module_names,
    const std::vector<std::string>& file_names) {
  NameMatch result;
  match(whole_names(module_names), whole_names(file_names), result);
  return result;
}

} // namespace ddp::detail
