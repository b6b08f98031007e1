#include <tests/support/catch.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/seed.h>
#include <ddp/verification.h>

using ddp::ProcessGroup;
using ddp::test::BranchNet;
using ddp::test::ranks;

TEST_CASE("one changed bit on one rank is found and named on all") {
  ranks(4, [](ProcessGroup group) {
    torch::manual_seed(3);
    const auto net = std::make_shared<BranchNet>();
    ddp::verify_same_parameters(*net, group);
    if (group.rank() == 2) {
      auto bytes = net->right->weight.detach().view(torch::kByte);
      bytes.view({-1})[5].bitwise_xor_(1);
    }
    REQUIRE_THROWS_WITH(
        ddp::verify_same_parameters(*net, group),
        ContainsSubstring("rank 2 differs from rank 0 in right.weight"));
  });
}

TEST_CASE("the parameter hash depends on each value and name") {
  torch::manual_seed(3);
  const auto net = std::make_shared<BranchNet>();
  const auto hash = ddp::parameter_hash(*net);
  torch::manual_seed(3);
  REQUIRE(ddp::parameter_hash(BranchNet()) == hash);
  {
    torch::NoGradGuard no_grad;
    net->never->bias[1] += 1;
  }
  REQUIRE(ddp::parameter_hash(*net) != hash);
}

TEST_CASE("manual_seed gives every rank rank 0's seed and equal states") {
  ranks(3, [](ProcessGroup group) {
    const uint64_t mine = 0xFFFFFFFF00000000ULL + group.rank();
    REQUIRE(ddp::manual_seed(mine, group) == 0xFFFFFFFF00000000ULL);
    const auto drawn = torch::randn({4});
    for (const auto& other : group.all_gather(drawn)) {
      REQUIRE(other.equal(drawn));
    }
  });
}

TEST_CASE("broadcast_buffers leaves the parameters alone") {
  ranks(3, [](ProcessGroup group) {
    torch::nn::BatchNorm1d norm(4);
    torch::NoGradGuard no_grad;
    norm->running_mean.fill_(group.rank() + 1);
    norm->weight.fill_(group.rank());
    ddp::broadcast_buffers(*norm, group);
    REQUIRE(norm->running_mean.eq(1).all().item<bool>());
    REQUIRE(norm->weight.eq(group.rank()).all().item<bool>());
  });
}
