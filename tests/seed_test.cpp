#include <tests/support/grouped_digits.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/ddp.h>
#include <ddp/random/random_state.h>

namespace ddp::test::seed_test {

/// Random numbers as a string that shows every bit.
std::string text_of(const torch::Tensor& numbers) {
  std::ostringstream text;
  for (const auto& number : numbers.flatten().unbind()) {
    text << std::hexfloat << number.item<double>() << ' ';
  }
  return text.str();
}

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
    REQUIRE_THAT(outcomes[0].output, Has("the seed of this run is"));
    REQUIRE_THAT(outcomes[1].output, !Has("the seed of this run is"));
  }
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
  // The bits of a seed that LibTorch's CPU generator uses.
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

FOLDER_TEST("the states of all generators come back from a file") {
  const auto path = folder / "random.safetensors";
  torch::manual_seed(3);
  std::mt19937 narrow(4);
  std::mt19937_64 wide(5);
  std::minstd_rand small(6);
  const auto draw = [&] {
    return text_of(torch::randn({5})) + ' ' + std::to_string(narrow()) + ' ' +
        std::to_string(wide()) + ' ' + std::to_string(small());
  };
  draw(); // an odd number: the state contains the cached normal one
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
  for (const auto& wrong :
       {read["cpu"], torch::zeros({3})}) { // changes nothing
    REQUIRE_THROWS_AS(set_generator_state(narrow, wrong), c10::ValueError);
  }
  REQUIRE(draw() == expected);
}

TEST_CASE("a generator's state does not depend on the locale") {
  const std::mt19937 generator(4);
  const auto expected = generator_state(generator);
  const auto before = group_digits();
  const auto state = generator_state(generator);
  std::mt19937 read;
  set_generator_state(read, expected);
  std::locale::global(before);
  REQUIRE(state.equal(expected));
  REQUIRE(read == generator);
}

TEST_CASE("a state of one GPU returns to the one GPU of its rank") {
  using Devices = std::vector<c10::Device>;
  const c10::Device cpu("cpu"), gpu_0("cuda:0"), gpu_1("cuda:1"),
      gpu_5("cuda:5");
  CHECK(detail::generators_for({cpu, gpu_1}, {5}) == Devices{cpu, gpu_5});
  CHECK(detail::generators_for({cpu, gpu_1}, {0}) == Devices{cpu, gpu_0});
  CHECK(detail::generators_for({cpu, gpu_1}, {0, 5}) == Devices{cpu, gpu_1});
  CHECK(detail::generators_for({cpu, gpu_1}, {}) == Devices{cpu, gpu_1});
  CHECK(
      detail::generators_for({cpu, gpu_0, gpu_1}, {5}) ==
      Devices{cpu, gpu_0, gpu_1});
  CHECK(detail::generators_for({cpu}, {5}) == Devices{cpu});
}

RANKS_TEST("a Reducer, or a wrapper, draws no random number") {
  manual_seed(1, group);
  auto net = std::make_shared<UnevenNet>();
  auto branches = std::make_shared<BranchNet>();
  const torch::nn::Sequential wrapped(
      torch::nn::Linear(7, 5), torch::nn::BatchNorm1d(5));
  const auto input = batch(group, 0, 7);
  const auto before = random_state()["cpu"];
  const auto untouched = [&] { return random_state()["cpu"].equal(before); };
  Reducer reducer(net, group); // several buckets
  Reducer unused(branches, group);
  DistributedDataParallel<torch::nn::Sequential> model(wrapped, group);
  REQUIRE(untouched());
  for (int step = 0; step < 3; ++step) {
    net->forward(input).sum().backward();
    REQUIRE(untouched());
    branches->forward(input.slice(1, 0, 4), group.rank() == step)
        .sum()
        .backward();
    REQUIRE(untouched());
    model->forward(input).sum().backward();
    REQUIRE(untouched());
    {
      const auto guard = reducer.no_sync();
      net->forward(input).sum().backward();
      const auto of_wrapper = model->no_sync();
      model->forward(input).sum().backward();
    }
    REQUIRE(untouched());
  }
  REQUIRE(reducer.buckets().size() > 1);
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
