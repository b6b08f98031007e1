// That a first checkpoint tells where ranks have drifted apart.
#include <tests/support/catch.h>
#include <tests/support/ranks.h>
#include <tests/support/shared_folder.h>
#include <tests/support/warnings.h>

#include <checkpoint/checkpoint.h>
#include <checkpoint/training_state.h>
#include <ddp/process_group.h>

using ddp::ProcessGroup;
using ddp::test::ranks;
using ddp::test::SharedFolder;
using ddp::test::warnings_of;
using torch::nn::Linear;

namespace {

/// Equal on all ranks but for rank 2's bias.
Linear make_layer(const ProcessGroup& group, bool differs) {
  torch::manual_seed(1);
  Linear layer(3, 2);
  if (differs && group.rank() == 2) {
    const torch::NoGradGuard no_grad;
    layer->bias.mul_(1.001);
  }
  return layer;
}

} // namespace

TEST_CASE("a first checkpoint tells which parameter differs on which rank") {
  const SharedFolder folder;
  ranks(3, [&](ProcessGroup group) {
    auto layer = make_layer(group, /*differs=*/true);
    const auto save = [&] {
      ddp::save_checkpoint(folder.path + "net.pt", *layer, group);
    };
    const auto texts = warnings_of(save);
    REQUIRE(texts.size() == (group.rank() == 0 ? 1 : 0));
    if (group.rank() == 0) {
      REQUIRE_THAT(
          texts[0],
          ContainsSubstring("the parameters differ between ranks: bias") &&
              ContainsSubstring("rank 2") &&
              ContainsSubstring("the same optimizer and learning rate"));
    }
    REQUIRE(warnings_of(save).empty()); // said once
  });
}

TEST_CASE("of several modules in a state each is compared") {
  const SharedFolder folder;
  ranks(3, [&](ProcessGroup group) {
    auto first = make_layer(group, /*differs=*/false);
    auto second = make_layer(group, /*differs=*/true);
    ddp::TrainingState state;
    state.add("generator", first).add("discriminator", second);
    const auto texts =
        warnings_of([&] { state.save(folder.path + "run.pt", group); });
    REQUIRE(texts.size() == (group.rank() == 0 ? 1 : 0));
    if (group.rank() == 0) {
      REQUIRE_THAT(texts[0], ContainsSubstring(": discriminator.bias"));
    }
  });
}

TEST_CASE("equal ranks, and those told not to, hear nothing") {
  const SharedFolder folder;
  ranks(
      3,
      [&] {
        for (const bool checks : {true, false}) {
          const auto group = ddp::init_process_group(
              ddp::ProcessGroupOptions().check_replicas(checks));
          auto layer = make_layer(group, /*differs=*/!checks);
          REQUIRE(warnings_of([&] {
                    ddp::save_checkpoint(folder.path + "net.pt", *layer, group);
                  }).empty());
        }
      },
      ddp::test::RankOptions());
}
