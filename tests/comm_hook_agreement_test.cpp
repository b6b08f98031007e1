// Ranks whose communication hooks differ.
#include <tests/support/comm_hooks.h>
#include <tests/support/ranks.h>

#include <ddp/comm_hooks/default_hooks.h>
#include <ddp/comm_hooks/post_local_sgd_hook.h>
#include <ddp/comm_hooks/power_sgd_hook.h>
#include <ddp/reducer.h>

namespace ddp::test::comm_hook_agreement_test {

using Hooks = std::vector<std::shared_ptr<CommHook>>;

RANKS_TEST("hooks that differ over ranks are refused by their descriptions") {
  const bool odd = group.rank() == 1;
  const auto power_sgd = [](const PowerSGDOptions& options) {
    return std::make_shared<PowerSGDHook>(options);
  };
  const auto parameter = torch::ones({2}, torch::requires_grad());
  const auto refused = [&](const std::shared_ptr<CommHook>& usual,
                           const std::string& usual_text,
                           const std::shared_ptr<CommHook>& other,
                           const std::string& other_text) {
    const auto error = words_of<c10::ValueError>([&] {
      (void)Reducer({parameter}, group, with_hook(odd ? other : usual));
    });
    INFO(error);
    const auto second = error.find("rank 0 has (");
    REQUIRE(error.find("rank 1 has options (") < second);
    REQUIRE(error.find("comm_hook " + other_text) < second);
    REQUIRE(error.find("comm_hook " + usual_text, second) < error.size());
  };
  refused(
      fp16_compress_hook(),
      "ddp::CompressHook(Half, ddp::AllReduceHook))",
      bf16_compress_hook(),
      "ddp::CompressHook(BFloat16, ddp::AllReduceHook))");
  refused(
      power_sgd(PowerSGDOptions()),
      "ddp::PowerSGDHook(matrix_approximation_rank 1, ",
      power_sgd(PowerSGDOptions().matrix_approximation_rank(2)),
      "ddp::PowerSGDHook(matrix_approximation_rank 2, ");
  refused( // inside another
      fp16_compress_hook(power_sgd(PowerSGDOptions())),
      "ddp::CompressHook(Half, ddp::PowerSGDHook(matrix_approximation_rank "
      "1, start_iteration 1000, ",
      fp16_compress_hook(power_sgd(PowerSGDOptions().start_iteration(5))),
      "ddp::CompressHook(Half, ddp::PowerSGDHook(matrix_approximation_rank "
      "1, start_iteration 5, ");
  refused(
      std::make_shared<HookChain>(
          Hooks{std::make_shared<NoopHook>(), fp16_compress_hook()}),
      "ddp::HookChain(ddp::NoopHook, ddp::CompressHook(Half, "
      "ddp::AllReduceHook)))",
      std::make_shared<HookChain>(Hooks{fp16_compress_hook()}),
      "ddp::HookChain(ddp::CompressHook(Half, ddp::AllReduceHook)))");
  refused(
      std::make_shared<QuantizationHook>(),
      "ddp::QuantizationHook(channel_size unset))",
      std::make_shared<QuantizationHook>(
          QuantizationOptions().channel_size(512)),
      "ddp::QuantizationHook(channel_size 512))");
  refused(
      std::make_shared<PostLocalSGDHook>(),
      "ddp::PostLocalSGDHook(start_iteration 0, ",
      std::make_shared<PostLocalSGDHook>(
          PostLocalSGDOptions().start_iteration(3)),
      "ddp::PostLocalSGDHook(start_iteration 3, ");
  refused(
      nullptr,
      "ddp::AllReduceHook)",
      std::make_shared<NoopHook>(),
      "ddp::NoopHook)");
  // The default, asked for.
  Reducer reducer(
      {parameter},
      group,
      with_hook(odd ? std::make_shared<AllReduceHook>() : nullptr));
  parameter.sum().backward();
  REQUIRE(parameter.grad().eq(1).all().item<bool>());
}

} // namespace ddp::test::comm_hook_agreement_test
