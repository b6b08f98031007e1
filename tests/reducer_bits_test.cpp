#include <bench/c10d_reducer.h>
#include <tests/parity/configurations.h>
#include <tests/support/ranks.h>

#include <ddp/reducer.h>

namespace ddp::test::reducer_bits_test {

using bench::C10dReducer;
using parity::Configuration;

/// Whether two states have the same names, dtypes, shapes and bytes.
bool same_bits(const StateDict& a, const StateDict& b) {
  if (a.keys() != b.keys()) {
    return false;
  }
  return std::equal(
      a.begin(), a.end(), b.begin(), [](const auto& left, const auto& right) {
        const auto& x = left.value();
        const auto& y = right.value();
        return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
            x.detach()
                .reshape({-1})
                .view(torch::kByte)
                .equal(y.detach().reshape({-1}).view(torch::kByte));
      });
}

std::shared_ptr<parity::Net> make_net(const std::string& name) {
  torch::manual_seed(42);
  return parity::make_net(name);
}

void compare_with_c10d(
    const Configuration& configuration,
    const ProcessGroup& group) {
  const auto rank = group.rank();
  const auto net = make_net(configuration.net);
  const auto oracle_net = make_net(configuration.net);
  // c10d's Reducer knows nothing of buffers.
  const auto options =
      ReducerOptions(configuration.options).broadcast_buffers(false);
  Reducer reducer(net, group, options);
  C10dReducer oracle(*oracle_net, group.duplicate(), options);
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  torch::optim::SGD oracle_optimizer(oracle_net->parameters(), 0.05);
  torch::manual_seed(100 + rank);
  const auto every = configuration.sync_every;
  for (int64_t step = 0; step < parity::kReductions * every; ++step) {
    const auto input = torch::randn({4, 48});
    const bool last = (step + 1) % every == 0;
    if (step % every == 0) {
      clear_gradients(*net, configuration.clear);
      clear_gradients(*oracle_net, configuration.clear);
    }
    std::optional<Reducer::NoSyncGuard> off;
    if (!last) {
      off.emplace(reducer.no_sync());
    }
    net->forward(input, rank, step).pow(2).mean().backward();
    const auto forward = [&] { return oracle_net->forward(input, rank, step); };
    const auto output = last ? oracle.forward(forward) : forward();
    output.pow(2).mean().backward();
    if (last) {
      optimizer.step();
      oracle_optimizer.step();
    }
    INFO(configuration.name << ", step " << step);
    REQUIRE(same_bits(state_of(*net), state_of(*oracle_net)));
  }
}

RANKS_TEST("gradients equal c10d's bit for bit, in each step", {3, 4}) {
  // With two ranks every order of addition gives the same bits: three and four.
  for (const auto& configuration : parity::configurations()) {
    compare_with_c10d(configuration, group);
  }
}

} // namespace ddp::test::reducer_bits_test
