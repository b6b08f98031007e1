#include <ddp/verification.h>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <xxhash.h>

#include <algorithm>
#include <sstream>

namespace ddp {
namespace {

// Enough to see what is wrong; a model may have thousands of parameters.
constexpr size_t kMaxDifferences = 8;

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

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) {
    text += line + '\n';
  }
  return text;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
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

[[noreturn]] void fail(
    const char* what,
    const std::vector<std::string>& differences) {
  std::ostringstream text;
  text << what;
  for (size_t i = 0; i < std::min(differences.size(), kMaxDifferences); ++i) {
    text << "\n  " << differences[i];
  }
  if (differences.size() > kMaxDifferences) {
    text << "\n  ... and " << differences.size() - kMaxDifferences << " more";
  }
  C10_THROW_ERROR(ValueError, text.str());
}

uint64_t tensor_hash(const at::Tensor& tensor, uint64_t seed) {
  const auto bytes = tensor.detach().cpu().contiguous();
  return XXH3_64bits_withSeed(
      bytes.const_data_ptr(), static_cast<size_t>(bytes.nbytes()), seed);
}

} // namespace

void verify_same_model(
    const NamedTensors& tensors,
    const std::string& options,
    const ProcessGroup& group) {
  if (group.size() == 1) {
    return;
  }
  const auto own = join(describe(tensors, options));
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
  for (int64_t r = 1; r < group.size(); ++r) {
    compare(r, split(texts[r]), split(texts[0]), differences);
  }
  fail("the model is not the same on all ranks:", differences);
}

void verify_same_parameters(
    const torch::nn::Module& module,
    const ProcessGroup& group) {
  const auto parameters = unique_parameters(module);
  auto hashes =
      at::empty({static_cast<int64_t>(parameters.tensors.size())}, at::kLong);
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    hashes[static_cast<int64_t>(i)] =
        static_cast<int64_t>(tensor_hash(parameters.tensors[i], 0));
  }
  const auto all = group.all_gather(hashes);
  std::vector<std::string> differences;
  for (int64_t r = 1; r < group.size(); ++r) {
    if (all[r].size(0) != all[0].size(0)) {
      differences.push_back(c10::str(
          "rank ",
          r,
          " has ",
          all[r].size(0),
          " parameters, rank 0 has ",
          all[0].size(0)));
      continue;
    }
    const auto unequal = all[r].ne(all[0]).nonzero();
    for (int64_t k = 0; k < unequal.size(0); ++k) {
      differences.push_back(c10::str(
          "rank ",
          r,
          " differs from rank 0 in ",
          parameters.names[unequal[k][0].item<int64_t>()]));
    }
  }
  if (!differences.empty()) {
    fail("the parameters are not the same on all ranks:", differences);
  }
}

uint64_t parameter_hash(const torch::nn::Module& module) {
  const auto parameters = unique_parameters(module);
  const auto names = join(describe(parameters, ""));
  uint64_t hash = XXH3_64bits(names.data(), names.size());
  for (const auto& tensor : parameters.tensors) {
    hash = tensor_hash(tensor, hash);
  }
  return hash;
}

} // namespace ddp
