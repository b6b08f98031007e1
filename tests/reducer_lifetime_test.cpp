// Reducers that do not live as long as the training, or that were given a
// module that is not the one that trains.
#include <tests/support/child.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/reducer.h>

namespace ddp::test::reducer_lifetime_test {

using torch::nn::Linear;
using torch::nn::Sequential;

void backward(Sequential& net) {
  net->zero_grad();
  net->forward(torch::rand({2, 4})).sum().backward();
}

Sequential make_net() {
  return Sequential(Linear(4, 3), Linear(3, 2));
}

struct TwoLayers : LayeredNet {
  Linear first = linear("first", 4, 3);
  Linear second = linear("second", 3, 2);

  void backward() {
    zero_grad();
    second->forward(first->forward(torch::ones({2, 4}))).sum().backward();
  }
};

RANKS_TEST("a Reducer that ends before it reduced anything is missed") {
  auto net = make_net();
  REQUIRE(warnings_of([&] { Reducer local(net, group); }).empty());
  const auto texts = warnings_of([&] {
    backward(net);
    backward(net);
  });
  REQUIRE(texts.size() == 1);
  REQUIRE_THAT(
      texts[0],
      Has("the gradient of ", "is not averaged over ranks", "a temporary"));
}

RANKS_TEST("a Reducer after one that reduced nothing takes its place") {
  auto net = make_net();
  auto reducer = std::make_unique<Reducer>(net, group);
  reducer.reset();
  reducer = std::make_unique<Reducer>(net, group);
  REQUIRE(warnings_of([&] { backward(net); }).empty());
  REQUIRE(reducer->statistics().iteration == 1);
  reducer.reset(); // it has reduced
  REQUIRE(warnings_of([&] { backward(net); }).empty());
}

RANKS_TEST("a forked child's end leaves the Reducer and group to the rank") {
  auto net = make_net();
  auto reducer = std::make_unique<Reducer>(net, group);
  backward(net);
  require_in_child([&] {
    reducer.reset();
    group = ProcessGroup();
  });
  backward(net);
  REQUIRE(reducer->statistics().iteration == 2);
  group.barrier();
}

RANKS_TEST("a Reducer that was given no group is told of") {
  auto net = make_net();
  const auto texts = warnings_of([&] { Reducer reducer(net, ProcessGroup()); });
  REQUIRE(texts.size() == 1);
  REQUIRE_THAT(
      texts[0],
      Has("a Reducer was given a group of one",
          "that init_process_group() returned"));
}

RANKS_TEST("a net that was replaced after the Reducer is missed at its end") {
  auto net = make_net();
  auto reducer = std::make_unique<Reducer>(net, group);
  net = make_net();
  REQUIRE(warnings_of([&] { backward(net); }).empty()); // not detectable yet
  const auto texts = warnings_of([&] { reducer.reset(); });
  REQUIRE(texts.size() == 1);
  REQUIRE_THAT(texts[0], Has("If the net was replaced"));
}

TEST_CASE("a layer that was replaced after the Reducer is an error") {
  for (const bool at_once : {true, false}) {
    ranks(3, [at_once](ProcessGroup group) {
      const auto net = std::make_shared<TwoLayers>();
      Reducer reducer(net, group);
      if (!at_once) {
        net->backward();
      }
      net->second = net->replace_module("second", Linear(3, 2));
      const auto run = [&] {
        warnings_of([&] { net->backward(); }); // also of the new layer
      };
      REQUIRE_THROWS_WITH(
          run(), Has("second.", "no longer belongs to the Reducer's module"));
    });
  }
}

TEST_CASE("a frozen layer that was replaced late is an error") {
  for (const bool at_once : {true, false}) {
    ranks(3, [at_once](ProcessGroup group) {
      const auto net = std::make_shared<TwoLayers>();
      const auto freeze = [&] { set_requires_grad(*net->second, false); };
      if (at_once) {
        freeze();
      }
      Reducer reducer(net, group);
      freeze();
      for (int step = 0; step < 4; ++step) {
        net->backward();
      }
      net->second = net->replace_module("second", Linear(3, 2));
      freeze(); // a new frozen layer needs no Reducer
      net->backward();
      net->second = net->replace_module("second", Linear(3, 2));
      REQUIRE_THROWS_WITH(
          net->backward(),
          Has("second.", "no longer belongs to the Reducer's module"));
    });
  }
}

} // namespace ddp::test::reducer_lifetime_test
