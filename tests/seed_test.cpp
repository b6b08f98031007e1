#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/distributed_data_parallel.h>
#include <ddp/random.h>
#include <ddp/reducer.h>

#include <random>
#include <set>
#include <sstream>

namespace ddp::test::seed_test {

namespace {

/// One of each kind of LibTorch's layers that have parameters.
std::vector<std::shared_ptr<torch::nn::Module>> layers() {
  namespace nn = torch::nn;
  const auto encoder = nn::TransformerEncoderLayer(4, 2);
  const auto decoder = nn::TransformerDecoderLayer(4, 2);
  const auto affine = nn::InstanceNormOptions(3).affine(true);
  return {
      nn::Linear(4, 3).ptr(),
      nn::Bilinear(3, 4, 2).ptr(),
      nn::Conv1d(nn::Conv1dOptions(2, 3, 2)).ptr(),
      nn::Conv2d(nn::Conv2dOptions(2, 3, 2)).ptr(),
      nn::Conv3d(nn::Conv3dOptions(2, 3, 2)).ptr(),
      nn::ConvTranspose1d(nn::ConvTranspose1dOptions(2, 3, 2)).ptr(),
      nn::ConvTranspose2d(nn::ConvTranspose2dOptions(2, 3, 2)).ptr(),
      nn::ConvTranspose3d(nn::ConvTranspose3dOptions(2, 3, 2)).ptr(),
      nn::Embedding(5, 3).ptr(),
      nn::EmbeddingBag(5, 3).ptr(),
      nn::RNN(3, 4).ptr(),
      nn::LSTM(nn::LSTMOptions(3, 4).bidirectional(true).proj_size(2)).ptr(),
      nn::GRU(nn::GRUOptions(3, 4).num_layers(2)).ptr(),
      nn::RNNCell(3, 4).ptr(),
      nn::LSTMCell(3, 4).ptr(),
      nn::GRUCell(3, 4).ptr(),
      nn::MultiheadAttention(4, 2).ptr(),
      nn::TransformerEncoderLayer(4, 2).ptr(),
      nn::TransformerDecoderLayer(4, 2).ptr(),
      nn::TransformerEncoder(encoder, 2).ptr(),
      nn::TransformerDecoder(decoder, 2).ptr(),
      nn::Transformer(nn::TransformerOptions(4, 2, 1, 1)).ptr(),
      nn::AdaptiveLogSoftmaxWithLoss(
          nn::AdaptiveLogSoftmaxWithLossOptions(64, 9, {2, 5}))
          .ptr(),
      nn::BatchNorm1d(3).ptr(),
      nn::BatchNorm2d(3).ptr(),
      nn::BatchNorm3d(3).ptr(),
      nn::InstanceNorm1d(affine).ptr(),
      nn::InstanceNorm2d(affine).ptr(),
      nn::InstanceNorm3d(affine).ptr(),
      nn::GroupNorm(nn::GroupNormOptions(1, 3)).ptr(),
      nn::LayerNorm(nn::LayerNormOptions({3})).ptr(),
      nn::PReLU().ptr()};
}

/// Norms and PReLU begin with ones and zeros.
bool draws_weights(const torch::nn::Module& layer) {
  const auto name = layer.name();
  return name.find("Norm") == std::string::npos &&
      name.find("PReLU") == std::string::npos;
}

/// Drawn numbers, as a text that shows every bit.
std::string text_of(const torch::Tensor& numbers) {
  std::ostringstream text;
  for (const auto& number : numbers.flatten().unbind()) {
    text << std::hexfloat << number.item<double>() << ' ';
  }
  return text.str();
}

} // namespace

RANKS_TEST("manual_seed gives every rank rank 0's seed and equal states") {
  const uint64_t mine = 0xFFFFFFFF00000000ULL + group.rank();
  REQUIRE(manual_seed(mine, group) == 0xFFFFFFFF00000000ULL);
  const auto drawn = torch::randn({4});
  for (const auto& other : group.all_gather(drawn)) {
    REQUIRE(other.equal(drawn));
  }
  torch::manual_seed(group.rank());
  REQUIRE_FALSE(equal_on_all(group, random_state()["cpu"]));
  manual_seed(mine, group);
  REQUIRE(equal_on_all(group, random_state()["cpu"]));
}

TEST_CASE("manual_seed without a seed draws one for all, and says it") {
  const auto outcomes = ranks(3, [] {
    const auto group = init_process_group();
    const auto first = manual_seed(group);
    REQUIRE(first != manual_seed(group));
    const auto seed = manual_seed(group);
    std::vector<std::string> all = group.all_gather(std::to_string(seed));
    REQUIRE(std::set<std::string>(all.begin(), all.end()).size() == 1);
    REQUIRE(equal_on_all(group, torch::randn({4})));
    std::printf("the seed was %s.\n", all[0].c_str());
  });
  if (!outcomes.empty()) {
    REQUIRE_THAT(
        outcomes[0].output, ContainsSubstring("the seed of this run is"));
    REQUIRE_THAT(
        outcomes[1].output, !ContainsSubstring("the seed of this run is"));
  }
}

RANKS_TEST("after manual_seed every layer has equal weights on all ranks") {
  torch::manual_seed(group.rank());
  for (const auto& layer : layers()) {
    INFO(layer->name());
    REQUIRE_FALSE(layer->parameters().empty());
    REQUIRE(equal_on_all(group, *layer) == !draws_weights(*layer));
  }
  manual_seed(7, group);
  for (const auto& layer : layers()) {
    INFO(layer->name());
    REQUIRE(equal_on_all(group, *layer));
  }
  REQUIRE(equal_on_all(group, random_state()["cpu"]));
}

RANKS_TEST("rank streams differ over ranks and epochs, and come again") {
  manual_seed(7, group);
  const auto masks = [&](int64_t epoch) {
    seed_rank_streams(7, epoch, group);
    const auto mask = torch::dropout(torch::ones({64}), 0.5, true);
    return group.all_gather(mask);
  };
  const auto first = masks(0);
  for (int64_t r = 1; r < 3; ++r) {
    REQUIRE_FALSE(first[r].equal(first[0]));
  }
  REQUIRE_FALSE(masks(1)[0].equal(first[0]));
  REQUIRE(masks(0)[2].equal(first[2]));
}

TEST_CASE("a second run draws the same dropout masks on each rank") {
  const auto masks_of_a_run = [] {
    const auto outcomes = ranks(4, [] {
      const auto group = init_process_group();
      manual_seed(7, group);
      torch::nn::Linear net(16, 16);
      Reducer reducer(net, group);
      seed_rank_streams(7, 2, group);
      const auto output = net(torch::ones({2, 16}));
      torch::dropout(output, 0.5, true).sum().backward();
      const auto mask = torch::dropout(torch::ones({64}), 0.5, true);
      std::printf("mask: %s\n", text_of(mask).c_str());
    });
    std::vector<std::string> masks;
    for (const auto& outcome : outcomes) {
      masks.push_back(outcome.output.substr(outcome.output.find("mask: ")));
      masks.back().resize(masks.back().find('\n'));
    }
    return masks;
  };
  const auto first = masks_of_a_run();
  const auto second = masks_of_a_run();
  REQUIRE(std::set<std::string>(first.begin(), first.end()).size() == 4);
  REQUIRE(first == second);
}

TEST_CASE("seeds are derived as documented") {
  // SplitMix64's first output for the seeds 0 and 1234567, as published.
  const auto step = [](uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  };
  REQUIRE(step(0) == 0xe220a8397b1dcdafULL);
  REQUIRE(step(1234567) == 6457827717110365317ULL);
  const auto base = step(step(42) ^ 3);
  REQUIRE(rank_seed(42, 3, 5) >> 32 == step(base ^ 5) >> 32);
  REQUIRE(
      uint32_t(rank_seed(42, 3, 5)) ==
      uint32_t(base + 0x9e3779b1 * uint64_t(5)));
  REQUIRE(sample_seed(42, 3, 5) == step(base ^ ~uint64_t(5)));
  // What LibTorch's generator on the CPU takes of a seed.
  std::set<uint32_t> low;
  for (int64_t rank = 0; rank < 5000; ++rank) {
    low.insert(static_cast<uint32_t>(rank_seed(42, 307, rank)));
  }
  REQUIRE(low.size() == 5000);
  std::set<uint64_t> seen;
  for (int64_t epoch = 0; epoch < 30; ++epoch) {
    for (int64_t rank = 0; rank < 30; ++rank) {
      seen.insert(rank_seed(0, epoch, rank));
      seen.insert(rank_seed(1, epoch, rank));
    }
  }
  REQUIRE(seen.size() == 1800);
}

TEST_CASE("generators go on from their saved states") {
  torch::manual_seed(3);
  std::mt19937 own(3);
  torch::randn({5});
  own();
  const auto state = random_state();
  const auto own_state = generator_state(own);
  const auto drawn = torch::randn({5});
  const auto number = own();
  torch::randn({50});
  set_random_state(state);
  std::mt19937 other;
  set_generator_state(other, own_state);
  REQUIRE(torch::randn({5}).equal(drawn));
  REQUIRE(other() == number);
  REQUIRE_THROWS_AS(set_generator_state(other, state["cpu"]), c10::ValueError);
  REQUIRE_THROWS_AS(
      set_generator_state(other, torch::zeros({3})), c10::ValueError);
  REQUIRE(other == [&] {
    std::mt19937 expected;
    set_generator_state(expected, own_state);
    expected();
    return expected;
  }()); // not changed by what was refused
}

TEST_CASE("the states of all generators come back from a file") {
  const TemporaryFolder folder;
  const auto path = folder / "random.safetensors";
  torch::manual_seed(3);
  std::mt19937 narrow(4);
  std::mt19937_64 wide(5);
  std::minstd_rand small(6);
  const auto draw = [&] {
    return text_of(torch::randn({5})) + ' ' + std::to_string(narrow()) + ' ' +
        std::to_string(wide()) + ' ' + std::to_string(small());
  };
  draw(); // an odd number of normal ones: the state holds the spare one too
  auto state = random_state();
  state.insert("narrow", generator_state(narrow));
  state.insert("wide", generator_state(wide));
  state.insert("small", generator_state(small));
  write_safetensors(path, state);
  const auto expected = draw();
  REQUIRE(draw() != expected);

  auto read = read_safetensors(path).tensors;
  set_generator_state(narrow, read["narrow"]);
  set_generator_state(wide, read["wide"]);
  set_generator_state(small, read["small"]);
  for (const auto* own : {"narrow", "wide", "small"}) {
    read.erase(own);
  }
  set_random_state(read);
  REQUIRE(draw() == expected);
}

RANKS_TEST("a Reducer draws no random number") {
  manual_seed(1, group);
  auto net = std::make_shared<UnevenNet>();
  auto branches = std::make_shared<BranchNet>();
  const auto input = batch(group, 0, 7);
  const auto before = random_state()["cpu"];
  const auto untouched = [&] { return random_state()["cpu"].equal(before); };
  Reducer reducer(net, group); // several buckets
  Reducer unused(branches, group);
  REQUIRE(untouched());
  for (int step = 0; step < 3; ++step) {
    net->forward(input).sum().backward();
    REQUIRE(untouched());
    branches->forward(input.slice(1, 0, 4), group.rank() == step)
        .sum()
        .backward();
    REQUIRE(untouched());
    {
      const auto guard = reducer.no_sync();
      net->forward(input).sum().backward();
    }
    REQUIRE(untouched());
  }
  REQUIRE(reducer.buckets().size() > 1);
}

RANKS_TEST("a wrapper draws no random number") {
  manual_seed(1, group);
  const torch::nn::Sequential net(
      torch::nn::Linear(7, 5), torch::nn::BatchNorm1d(5));
  const auto input = batch(group, 0, 7);
  const auto before = random_state()["cpu"];
  DistributedDataParallel<torch::nn::Sequential> model(net, group);
  for (int step = 0; step < 3; ++step) {
    {
      const auto guard = model->no_sync();
      model->forward(input).sum().backward();
    }
    model->forward(input).sum().backward();
    REQUIRE(random_state()["cpu"].equal(before));
  }
}

TEST_CASE("deterministic algorithms are switched on and off in one call") {
  auto& context = at::globalContext();
  use_deterministic_algorithms();
  REQUIRE(context.deterministicAlgorithms());
  REQUIRE(context.deterministicCuDNN());
  REQUIRE_FALSE(context.benchmarkCuDNN());
  REQUIRE(std::string(std::getenv("CUBLAS_WORKSPACE_CONFIG")) == ":4096:8");
  use_deterministic_algorithms(false);
  REQUIRE_FALSE(context.deterministicAlgorithms());
}

} // namespace ddp::test::seed_test
