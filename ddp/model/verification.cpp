#include <ddp/verification.h>

#include <ddp/model/tensor_contents.h>
#include <ddp/process_group/agreement/rank_report.h>

#include <ATen/ATen.h>
#include <xxhash.h>

#include <algorithm>

namespace ddp {
namespace {

using detail::join_lines;
using detail::split_lines;

std::vector<std::string> describe(
    const NamedTensors& tensors,
    const std::string& options) {
  std::vector<std::string> lines{options};
  for (size_t i = 0; i < tensors.tensors.size(); ++i) {
    const auto& tensor = tensors.tensors[i];
    lines.push_back(c10::str(
        tensors.names[i],
        " ",
        tensor.scalar_type(),
        " ",
        tensor.sizes(),
        " with strides ",
        tensor.strides(),
        tensor.requires_grad() ? ", trainable" : ""));
  }
  return lines;
}

/// Adds to `differences` where rank `r` differs from rank 0.
void compare(
    int64_t r,
    const std::vector<std::string>& other,
    const std::vector<std::string>& reference,
    std::vector<std::string>& differences) {
  if (other.front() != reference.front()) {
    differences.push_back(c10::str(
        "rank ",
        r,
        " has options (",
        other.front(),
        "), rank 0 has (",
        reference.front(),
        ")"));
  }
  const auto count = std::max(other.size(), reference.size());
  for (size_t i = 1; i < count; ++i) {
    const auto& mine = i < other.size() ? other[i] : "none";
    const auto& theirs = i < reference.size() ? reference[i] : "none";
    if (mine != theirs) {
      differences.push_back(c10::str(
          "rank ",
          r,
          " has as parameter ",
          i - 1,
          " ",
          mine,
          ", rank 0 has ",
          theirs));
      if (other.size() != reference.size()) {
        return; // what follows is shifted and says nothing
      }
    }
  }
}

} // namespace

void verify_same_model(
    const NamedTensors& tensors,
    const std::string& options,
    const ProcessGroup& group) {
  if (group.size() == 1) {
    return;
  }
  const auto own = join_lines(describe(tensors, options));
  const auto hash = XXH3_64bits(own.data(), own.size());
  const auto hashes = group.all_gather(
      at::scalar_tensor(static_cast<int64_t>(hash), at::kLong));
  bool equal = true;
  for (const auto& other : hashes) {
    equal = equal && other.item<int64_t>() == hashes[0].item<int64_t>();
  }
  if (equal) {
    return;
  }
  const auto texts = group.all_gather(own);
  std::vector<std::string> differences;
  bool same_tensors = true;
  const auto reference = split_lines(texts[0]);
  for (int64_t r = 1; r < group.size(); ++r) {
    const auto other = split_lines(texts[r]);
    compare(r, other, reference, differences);
    same_tensors = same_tensors &&
        std::equal(other.begin() + 1,
                   other.end(),
                   reference.begin() + 1,
                   reference.end());
  }
  detail::throw_differences(
      same_tensors ? "the options are not the same on all ranks:"
                   : "the model is not the same on all ranks:",
      differences);
}

uint64_t parameter_hash(const torch::nn::Module& module) {
  const auto parameters = unique_parameters(module);
  const auto names = join_lines(describe(parameters, ""));
  uint64_t hash = XXH3_64bits(names.data(), names.size());
  for (const auto& tensor : parameters.tensors) {
    hash = detail::tensor_hash(tensor, hash);
  }
  return hash;
}

} // namespace ddp
