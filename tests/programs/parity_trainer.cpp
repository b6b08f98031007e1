// The C++ side of the comparison with Python's DistributedDataParallel: trains
// and writes gradients, parameters and buffers of each step to a folder.
// Run: ddprun --nproc-per-node 3 parity_trainer FOLDER CONFIGURATION [FAULT]
// CONFIGURATION is a name of tests/parity/configurations.h or "all"; FAULT, to
// see the comparison fail, "no-reduce" or "multiply".
// tests/parity/ddp_parity.py is the other side.

#include <ddp/ddp.h>
#include <tests/parity/configurations.h>
#include <tests/support/either_way.h>

#include <fstream>

using ddp::parity::Configuration;
using ddp::parity::Net;

namespace {

std::shared_ptr<Net> make_net(const std::string& name, int64_t rank) {
  torch::manual_seed(42);
  auto net = ddp::parity::make_net(name);
  for (auto& buffer : net->buffers()) {
    buffer.fill_(rank); // shows whose buffer is broadcast
  }
  return net;
}

void train(
    const Configuration& configuration,
    const ddp::ProcessGroup& group,
    const std::string& folder,
    bool reduce) {
  const auto rank = group.rank();
  const auto net = make_net(configuration.net, rank);
  ddp::test::EitherWay<Net> model(
      net, group, configuration.wrapped, configuration.options);
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  torch::manual_seed(100 + rank); // a different shard for each rank
  const auto every = configuration.sync_every;
  const auto save = [&](const std::string& moment) {
    c10::Dict<std::string, torch::Tensor> state;
    for (const auto& item : state_of(*net)) {
      state.insert(item.key(), item.value());
    }
    ddp::write_checkpoint_file(
        folder + "/" + configuration.name + "_rank" + std::to_string(rank) +
            "_" + moment + ".pt",
        state);
  };
  auto join =
      model.join(ddp::JoinOptions()
                     .enable(configuration.uneven != ddp::parity::Uneven::kNo)
                     .divide_by_initial_world_size(
                         configuration.divide_by_initial_world_size));
  for (int64_t step = 0; step < configuration.steps(rank, group.size());
       ++step) {
    const auto input = torch::randn({4, 48});
    const bool last = (step + 1) % every == 0;
    if (step % every == 0) {
      clear_gradients(*net, configuration.clear);
    }
    std::optional<ddp::Reducer::NoSyncGuard> off;
    if (!last || !reduce) {
      off.emplace(model.no_sync());
    }
    model.forward(input, rank, step).pow(2).mean().backward();
    if (last) {
      optimizer.step();
    }
    save("step" + std::to_string(step));
  }
  join.finish();
  // Python's ranks without inputs get no gradients.
  clear_gradients(*net, ddp::parity::Clear::kToNone);
  save("end");
}

} // namespace

int main(int argc, char** argv) {
  TORCH_CHECK(argc >= 3, "the folder or the configuration is missing");
  const std::string wanted = argv[2];
  const std::string fault = argc > 3 ? argv[3] : "";
  at::set_num_threads(1);
  const auto group = ddp::init_process_group();
  std::ofstream(argv[1] + std::string("/configurations.txt"))
      << ddp::parity::kConfigurations;
  for (auto& configuration : ddp::parity::configurations()) {
    if (fault == "multiply") {
      configuration.options.gradient_as_bucket_view(false);
    }
    if (wanted == "all" || wanted == configuration.name) {
      train(configuration, group, argv[1], fault != "no-reduce");
    }
  }
  return 0;
}
