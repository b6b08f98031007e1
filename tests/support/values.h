#pragma once

#include <tests/support/catch.h>

#include <ddp/process_group.h>

// For tests of comparisons and checks of values over ranks.

namespace ddp::test {

/// The text of the `c10::ValueError` that `check` throws on every rank; empty
/// if `check` throws on no rank.
template <typename Check>
std::string error_on_all(const ProcessGroup& group, Check&& check) {
  const auto error = words_of<c10::ValueError>(check);
  for (const auto& other : group.all_gather(error)) {
    REQUIRE(other == error);
  }
  return error;
}

/// Requires that the group is usable.
inline void check_usable(const ProcessGroup& group) {
  auto sum = torch::ones({1});
  group.all_reduce(sum);
  REQUIRE(sum.item<int64_t>() == group.size());
}

/// The sum over `group` of its ranks in `world`.
inline double sum_of_ranks(
    const ProcessGroup& group,
    const ProcessGroup& world) {
  auto tensor = torch::full({3}, static_cast<double>(world.rank()));
  group.all_reduce(tensor);
  return tensor[0].item<double>();
}

inline void set_gradients(torch::nn::Module& module) {
  for (auto& parameter : module.parameters()) {
    parameter.mutable_grad() = torch::ones_like(parameter);
  }
}

/// Ones (2 x 3) of every dtype that can represent 1.
inline std::vector<torch::Tensor> ones_of_all_dtypes() {
  std::vector<torch::Tensor> tensors;
  for (const auto dtype :
       {torch::kBool,
        torch::kUInt8,
        torch::kInt8,
        torch::kInt16,
        torch::kInt32,
        torch::kInt64,
        torch::kUInt16,
        torch::kUInt32,
        torch::kUInt64,
        torch::kHalf,
        torch::kBFloat16,
        torch::kFloat,
        torch::kDouble,
        torch::kComplexHalf,
        torch::kComplexFloat,
        torch::kComplexDouble,
        torch::kFloat8_e4m3fn,
        torch::kFloat8_e5m2}) {
    tensors.push_back(torch::ones({2, 3}).to(dtype));
  }
  return tensors;
}

inline torch::Tensor sparse(const torch::Tensor& values, int64_t first = 0) {
  const auto indices = torch::arange(first, first + values.size(0));
  return torch::sparse_coo_tensor(indices.unsqueeze(0), values, {100});
}

/// The tensors of ones above, and ones of other layouts.
inline std::vector<torch::Tensor> ones_of_all_kinds() {
  auto tensors = ones_of_all_dtypes();
  tensors.push_back(torch::ones({}));
  tensors.push_back(sparse(torch::ones(3)));
  tensors.push_back(torch::ones({2, 3}).to_sparse_csr());
  return tensors;
}

} // namespace ddp::test
