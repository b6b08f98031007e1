#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ddp::detail {

/// The maximum number of differences that a message lists, since a model may
/// have thousands of parameters.
constexpr size_t kMaxDifferences = 8;

/// Joins the lines into one string to send, each followed by a newline.
std::string join_lines(const std::vector<std::string>& lines);

/// Formats ranks in ascending order: "rank 2", "ranks 0, 1 and 3", "ranks 0-2
/// and 4-7".
std::string name_ranks(const std::vector<int64_t>& ranks);

/// Returns the ranks with equal keys, in the order of the first rank of each
/// key.
template <typename Key>
std::vector<std::pair<Key, std::vector<int64_t>>> group_ranks(
    const std::vector<Key>& of_ranks) {
  std::vector<std::pair<Key, std::vector<int64_t>>> groups;
  for (size_t r = 0; r < of_ranks.size(); ++r) {
    auto found =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
          return group.first == of_ranks[r];
        });
    if (found == groups.end()) {
      found = groups.insert(found, {of_ranks[r], {}});
    }
    found->second.push_back(static_cast<int64_t>(r));
  }
  return groups;
}

/// Joins the texts of the ranks, each preceded by its ranks: "ranks 0 and 2:
/// this; rank 1: that". Omits ranks with an empty text.
std::string name_by_ranks(const std::vector<std::string>& texts);

/// Throws `c10::ValueError` unless all ranks report the same call.
void check_same_calls(const std::vector<std::string>& calls);

/// Returns `what`, a line for each of the first few differences, and the number
/// of additional differences, including `left_out`.
std::string list_differences(
    const std::string& what,
    const std::vector<std::string>& differences,
    size_t left_out = 0,
    const std::string& remedy = "");

/// Throws `c10::ValueError` with the text of `list_differences`.
[[noreturn]] void throw_differences(
    const std::string& what,
    const std::vector<std::string>& differences,
    size_t left_out = 0,
    const std::string& remedy = "");

} // namespace ddp::detail
