#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/ddp.h>

namespace ddp::test::summary_test {

/// Has a parameter of another module.
struct Tied : torch::nn::Module {
  explicit Tied(const torch::Tensor& weight) {
    register_parameter("weight", weight);
  }
};

/// One of each kind of parameter.
struct WordNet : LayeredNet {
  torch::Tensor scale = register_parameter("scale", torch::ones({1}));
  torch::nn::Embedding words = add("words", torch::nn::Embedding(300, 4));
  torch::nn::Embedding rare = add(
      "rare",
      torch::nn::Embedding(torch::nn::EmbeddingOptions(50, 4).sparse(true)));
  torch::nn::Linear stem = linear("stem", 4, 4);
  torch::nn::Sequential body =
      add("body",
          torch::nn::Sequential(torch::nn::ReLU(), torch::nn::Linear(4, 4)));
  torch::nn::Linear own = linear("own", 4, 4);
  std::shared_ptr<Tied> tied =
      register_module("tied", std::make_shared<Tied>(words->weight));

  WordNet() {
    stem->bias.set_requires_grad(false);
  }

  torch::Tensor forward(torch::Tensor indices) {
    const auto x = words(indices) + rare(indices) * scale;
    return torch::matmul(own(body->forward(stem(x))), words->weight.t());
  }
};

ReducerOptions options() {
  return ReducerOptions()
      .parameters_to_ignore({"own.weight", "own.bias"})
      .bucket_cap_mb(1e-6);
}

void step(WordNet& net) {
  net.forward(torch::arange(5)).sum().backward();
}

/// The lines before the first empty one.
std::string table(const std::string& text) {
  return text.substr(0, text.find("\n\n") + 1);
}

RANKS_TEST("the summary shows each module's parameters and buckets") {
  auto net = std::make_shared<WordNet>();
  Reducer reducer(net, group, options());
  REQUIRE_THAT(
      summary(net, reducer),
      Has("\n\nreductions  0 by ddp::AllReduceHook\n",
          "\nbuckets     1 of 4.8 KiB\n") &&
          !Has("rebuilt") && !Has("times"));
  step(*net);
  step(*net);
  const auto after = summary(net, reducer);
  REQUIRE(
      table(after) ==
      "module    type       buckets    parameters    bytes  gradients\n"
      "(itself)  WordNet    5                   1      4 B        4 B\n"
      "words     Embedding  4               1,200  4.7 KiB    4.7 KiB\n"
      "rare      Embedding  sparse            200    800 B        0 B\n"
      "stem      Linear     3; frozen          20     80 B       64 B\n"
      "body.1    Linear     1-2                20     80 B       80 B\n"
      "own       Linear     ignored            20     80 B        0 B\n"
      "tied      Tied       4; shared           0      0 B        0 B\n"
      "total                                1,461  5.7 KiB    4.8 KiB\n");
  REQUIRE_THAT(
      after,
      Has("\nreductions  2 by ddp::AllReduceHook\n",
          "\nrebuilt     5 of 4 B to 4.7 KiB, 4.8 KiB in all\n",
          "\nbackward ",
          "\nof 2 timed backward passes\n") &&
          !Has("\nforward "));
  net->stem->bias.set_requires_grad(true); // in a bucket after the next pass
  REQUIRE_THAT(summary(net, reducer), Has("\nstem      Linear     3    "));
}

TEST_CASE("alone, the summary calls only sparse gradients sparse") {
  const auto net = std::make_shared<WordNet>();
  const Reducer reducer(net, ProcessGroup(), options());
  REQUIRE(
      table(summary(net, reducer)) ==
      "module    type       buckets  parameters    bytes  gradients\n"
      "(itself)  WordNet                      1      4 B        0 B\n"
      "words     Embedding                1,200  4.7 KiB        0 B\n"
      "rare      Embedding  sparse          200    800 B        0 B\n"
      "stem      Linear     frozen           20     80 B        0 B\n"
      "body.1    Linear                      20     80 B        0 B\n"
      "own       Linear     ignored          20     80 B        0 B\n"
      "tied      Tied       shared            0      0 B        0 B\n"
      "total                              1,461  5.7 KiB        0 B\n");
}

RANKS_TEST("the summary looks through wrappers, pointers and holders") {
  auto net = std::make_shared<WordNet>();
  DistributedDataParallel<WordNet> model(net, group, options());
  const auto& reducer = model->reducer();
  const auto text = summary(*net, reducer);
  REQUIRE(summary(model, reducer) == text);
  REQUIRE(summary(*model, reducer) == text);
  REQUIRE(summary(net, reducer) == text);
  REQUIRE_THAT(text, Has("\nbody.1 "));
  model->forward(torch::arange(5)).sum().backward();
  REQUIRE_THAT(summary(model, reducer), Has("\nforward "));
}

TEST_CASE("thousands of parameters come module by module, in columns") {
  torch::nn::Sequential net;
  for (int i = 0; i < 1200; ++i) {
    net->push_back(torch::nn::Linear(3, 4));
    net->push_back(torch::nn::ReLU());
  }
  const Reducer reducer(net, ProcessGroup());
  std::istringstream lines(table(summary(net, reducer)));
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) {
    all.push_back(line);
    REQUIRE(line.size() == all.front().size());
  }
  REQUIRE(all.size() == 1202); // the head and the total
  CHECK(all.back().substr(0, 5) == "total");
  CHECK_THAT(all.back(), Has(" 19,200  75.0 KiB"));
}

} // namespace ddp::test::summary_test
