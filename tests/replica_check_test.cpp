// That a first checkpoint tells where ranks have drifted apart.
#include <tests/support/catch.h>
#include <tests/support/ranks.h>
#include <tests/support/shared_folder.h>
#include <tests/support/warnings.h>

#include <checkpoint/checkpoint.h>
#include <checkpoint/training_state.h>
#include <ddp/process_group.h>
#include <ddp/reducer.h>

using ddp::ProcessGroup;
using ddp::test::ranks;
using ddp::test::SharedFolder;
using ddp::test::warnings_of;
using torch::nn::Linear;

namespace {

Linear make_layer() {
  torch::manual_seed(1);
  return Linear(3, 2);
}

/// Changes rank 2's bias.
void drift(Linear& layer, const ProcessGroup& group) {
  if (group.rank() == 2) {
    const torch::NoGradGuard no_grad;
    layer->bias.mul_(1.001);
  }
}

} // namespace

TEST_CASE("a first checkpoint tells which parameter differs on which rank") {
  const SharedFolder folder;
  ranks(3, [&](ProcessGroup group) {
    auto layer = make_layer();
    const ddp::Reducer reducer(layer, group);
    drift(layer, group);
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
    auto first = make_layer();
    auto second = make_layer();
    const ddp::Reducer reducer(second, group);
    drift(second, group);
    drift(first, group); // each rank's own: nobody averages it
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
          auto layer = make_layer();
          const ddp::Reducer reducer(layer, group);
          if (!checks) {
            drift(layer, group);
          }
          REQUIRE(warnings_of([&] {
                    ddp::save_checkpoint(folder.path + "net.pt", *layer, group);
                  }).empty());
        }
      },
      ddp::test::RankOptions());
}
