#include <ddp/model/same_values.h>

#include <common/text.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/model/tensor_contents.h>
#include <ddp/process_group/agreement/rank_report.h>

#include <ATen/ATen.h>
#include <xxhash.h>

namespace ddp {
namespace {

using detail::join_lines;
using detail::kMaxDifferences;
using detail::name_ranks;
using Ranks = std::vector<int64_t>;

uint64_t text_hash(const std::string& text) {
  return XXH3_64bits(text.data(), text.size());
}

/// The largest group of ranks with the same value; of equally large groups, the
/// group with the lowest rank.
template <typename Value>
Ranks majority(const std::vector<Value>& by_rank) {
  const auto groups = detail::group_ranks(by_rank); // ordered by lowest rank
  return std::max_element(
             groups.begin(),
             groups.end(),
             [](const auto& a, const auto& b) {
               return a.second.size() < b.second.size();
             })
      ->second;
}

Ranks others(const Ranks& ranks, int64_t size) {
  Ranks rest;
  for (int64_t r = 0; r < size; ++r) {
    if (!std::binary_search(ranks.begin(), ranks.end(), r)) {
      rest.push_back(r);
    }
  }
  return rest;
}

const char* have(const Ranks& ranks) {
  return ranks.size() == 1 ? " has" : " have";
}

/// The first difference of rank `r`'s list, a length and names, from `theirs`.
std::string list_difference(
    int64_t r,
    const std::vector<std::string>& mine,
    const Ranks& most,
    const std::vector<std::string>& theirs) {
  size_t i = 1;
  while (i < std::min(mine.size(), theirs.size()) && mine[i] == theirs[i]) {
    ++i;
  }
  const auto has = [i](const Ranks& ranks, const auto& list) {
    return detail::format(
        "{} ({} tensors){}{}",
        name_ranks(ranks),
        list[0],
        have(ranks),
        i < list.size() ? " '" + list[i] + "'" : " none");
  };
  return detail::format(
      "{} as tensor {}, {}", has({r}, mine), i - 1, has(most, theirs));
}

/// Describes how the ranks' lists differ; "" if they do not.
std::string compare_lists(
    const std::string& own,
    const ProcessGroup& group,
    const std::string& what) {
  const auto texts = group.all_gather(own);
  const auto most = majority(texts);
  const auto theirs = split_lines(texts[most[0]]);
  std::vector<std::string> differences;
  for (const auto r : others(most, group.size())) {
    differences.push_back(
        list_difference(r, split_lines(texts[r]), most, theirs));
  }
  return differences.empty()
      ? ""
      : detail::list_differences(
            "the " + what + " are not the same list on all ranks:",
            differences);
}

/// A tensor that differs between ranks.
struct Difference {
  std::string name;
  std::vector<std::string> descriptions; // by rank
  Ranks most;
  Ranks odd;
};

std::vector<Difference> find_differences(
    const NamedTensors& tensors,
    const at::Tensor& hashes,
    const ProcessGroup& group) {
  std::vector<std::string> own;
  for (const auto& tensor : tensors.tensors) {
    own.push_back(detail::describe(tensor));
  }
  std::vector<std::vector<std::string>> descriptions;
  for (const auto& text : group.all_gather(join_lines(own))) {
    descriptions.push_back(split_lines(text));
  }
  const auto all_hashes = group.all_gather(hashes);
  std::vector<Difference> differences;
  for (size_t i = 0; i < own.size(); ++i) {
    std::vector<int64_t> by_rank;
    for (const auto& of_rank : all_hashes) {
      by_rank.push_back(of_rank.const_data_ptr<int64_t>()[i]);
    }
    const auto most = majority(by_rank);
    if (most.size() < by_rank.size()) {
      differences.push_back(
          {tensors.names[i], {}, most, others(most, group.size())});
      for (const auto& of_rank : descriptions) {
        differences.back().descriptions.push_back(of_rank[i]);
      }
    }
  }
  return differences;
}

/// The tensor's description, with ranks if it differs: "Float [3] on ranks 0
/// and 1; undefined on rank 2".
std::string describe(const std::vector<std::string>& by_rank) {
  const auto groups = detail::group_ranks(by_rank);
  if (groups.size() == 1) {
    return by_rank[0];
  }
  std::string text;
  for (const auto& [description, of] : groups) {
    text += (text.empty() ? "" : "; ") + description + " on " + name_ranks(of);
  }
  return text;
}

std::string describe(
    const std::string& what,
    const std::vector<Difference>& differences) {
  const auto& first = differences.at(0);
  auto text = detail::format(
      "the {} differ between ranks: {} ({}) on {} differs from that on {}",
      what,
      first.name,
      describe(first.descriptions),
      name_ranks(first.odd),
      name_ranks(first.most));
  const auto more = differences.size() - 1;
  const auto shown = std::min(more, kMaxDifferences);
  if (more > 0) {
    text += detail::format(
        "; {}{}",
        more,
        more == 1 ? " more tensor differs: " : " more tensors differ: ");
  }
  for (size_t i = 1; i <= shown; ++i) {
    text += detail::format(
        "{}{} ({})",
        i == 1 ? "" : ", ",
        differences[i].name,
        name_ranks(differences[i].odd));
  }
  return text + (more > shown ? ", ..." : "");
}

} // namespace

std::string detail::different_values(
    const NamedTensors& tensors,
    const ProcessGroup& group,
    const std::string& what) {
  const detail::heartbeat::Activity activity("verify_same_values");
  if (group.size() == 1) {
    return "";
  }
  auto list = tensors.names;
  list.insert(list.begin(), std::to_string(list.size()));
  const auto names = join_lines(list);
  const auto count = static_cast<int64_t>(tensors.tensors.size());
  const auto hashes = at::empty({count}, at::kLong);
  auto* hash = hashes.mutable_data_ptr<int64_t>();
  for (const auto& tensor : tensors.tensors) {
    // The same bytes may have another dtype or shape.
    const auto seed = text_hash(detail::describe(tensor));
    *hash++ = static_cast<int64_t>(
        tensor.defined() ? detail::tensor_hash(tensor, seed) : seed);
  }
  const auto checksum = detail::tensor_hash(hashes, text_hash(names));
  if (detail::is_same_on_all(checksum, group)) {
    return "";
  }
  const auto different_lists = compare_lists(names, group, what);
  return different_lists.empty()
      ? describe(what, find_differences(tensors, hashes, group))
      : different_lists;
}

void verify_same_values(
    const NamedTensors& tensors,
    const ProcessGroup& group,
    const std::string& what) {
  const auto different = detail::different_values(tensors, group, what);
  if (!different.empty()) {
    DDP_THROW(ValueError, different);
  }
}

} // namespace ddp
