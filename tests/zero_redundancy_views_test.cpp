// Parameters that a sharded optimizer makes views of its buckets.
#include <tests/support/ranks.h>
#include <tests/support/sharded.h>

namespace ddp::test::zero_redundancy_views_test {

/// Parameters of several layouts, equal on all ranks.
std::vector<torch::Tensor> of_layouts() {
  torch::manual_seed(4);
  std::vector<torch::Tensor> parameters = {
      torch::randn({4, 3, 2, 2}).contiguous(torch::MemoryFormat::ChannelsLast),
      torch::randn({5, 2}),
      torch::randn({2, 6}).t(),
      torch::randn({3, 5, 2, 2}).contiguous(torch::MemoryFormat::ChannelsLast),
      torch::randn({4, 6}).narrow(1, 0, 5), // with gaps
      torch::randn({2, 2, 2, 2, 2})
          .contiguous(torch::MemoryFormat::ChannelsLast3d)};
  for (auto& parameter : parameters) {
    parameter = parameter.detach().requires_grad_();
  }
  return parameters;
}

RANKS_TEST("parameters that become views keep their layout") {
  auto plain = of_layouts();
  auto sharded = of_layouts();
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  torch::optim::SGD expected(plain, options);
  Zero<torch::optim::SGD> optimizer(
      sharded,
      group,
      options,
      ZeroRedundancyOptions().parameters_as_bucket_view(true));
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < plain.size(); ++i) {
      plain[i].mutable_grad() = torch::randn_like(plain[i]);
      sharded[i].mutable_grad() = plain[i].grad().clone();
    }
    expected.step();
    optimizer.step();
  }
  for (size_t i = 0; i < plain.size(); ++i) {
    INFO("parameter " << i);
    REQUIRE(sharded[i].equal(plain[i]));
    if (plain[i].is_non_overlapping_and_dense()) {
      REQUIRE(sharded[i].strides() == plain[i].strides());
    }
  }
}

RANKS_TEST("parameters that become views have the same layout on all ranks") {
  auto parameter = torch::ones({4, 3, 2, 2}).requires_grad_();
  if (group.rank() == 1) {
    parameter = parameter.detach()
                    .contiguous(torch::MemoryFormat::ChannelsLast)
                    .requires_grad_();
  }
  Zero<torch::optim::SGD> optimizer(
      std::vector<torch::Tensor>{parameter},
      group,
      torch::optim::SGDOptions(0.1),
      ZeroRedundancyOptions().parameters_as_bucket_view(true));
  parameter.mutable_grad() = torch::ones_like(parameter);
  REQUIRE_THROWS_WITH(optimizer.step(), Has("strides"));
}

} // namespace ddp::test::zero_redundancy_views_test
