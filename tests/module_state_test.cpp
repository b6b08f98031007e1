#include <tests/support/ranks.h>

#include <ddp/module_state.h>

namespace ddp::test::module_state_test {

RANKS_TEST("broadcast_tensors keeps values of mixed dtypes and layouts") {
  torch::manual_seed(group.rank());
  const auto make = [] {
    return std::vector<at::Tensor>{
        torch::randn({3, 4}),
        torch::randint(1000, {5}, torch::kLong),
        torch::randn({4, 3}).t(),
        torch::randn({}, torch::kDouble),
        torch::empty({0}),
        torch::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast),
        torch::tensor({true, false})};
  };
  auto tensors = make();
  tensors[0].requires_grad_();
  const auto version = tensors[0]._version();
  const auto strides = tensors[5].strides().vec();
  broadcast_tensors(tensors, group);
  torch::manual_seed(0);
  const auto expected = make();
  for (size_t i = 0; i < tensors.size(); ++i) {
    REQUIRE(tensors[i].equal(expected[i]));
  }
  REQUIRE(tensors[0]._version() == version);
  REQUIRE(tensors[5].strides().vec() == strides);
}

RANKS_TEST("broadcast_tensors sends more than fits one message", 2) {
  std::vector<at::Tensor> tensors;
  for (const int64_t mebibytes : {1, 140, 130, 2}) {
    tensors.push_back(
        torch::full({mebibytes << 20}, group.rank() + 1, torch::kByte));
  }
  broadcast_tensors(tensors, group);
  for (const auto& tensor : tensors) {
    REQUIRE(tensor.eq(1).all().item<bool>());
  }
}

RANKS_TEST("broadcast_buffers leaves the parameters alone") {
  torch::nn::BatchNorm1d norm(4);
  torch::NoGradGuard no_grad;
  norm->running_mean.fill_(group.rank() + 1);
  norm->weight.fill_(group.rank());
  broadcast_buffers(*norm, group);
  REQUIRE(norm->running_mean.eq(1).all().item<bool>());
  REQUIRE(norm->weight.eq(group.rank()).all().item<bool>());
}

} // namespace ddp::test::module_state_test
