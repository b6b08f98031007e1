#include <tests/support/comm_hooks.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/reducer.h>

namespace ddp::test::sparse_gradients_test {

at::Tensor words_of(int64_t rank, int64_t step) {
  return torch::tensor({rank, rank + step, int64_t{4}, int64_t{4}});
}

RANKS_TEST("sparse gradients of embeddings are averaged") {
  WordNet net;
  Reducer reducer(net, group);
  WordNet dense;
  copy_parameters(*net, *dense);
  for (int step = 0; step < 4; ++step) {
    reset_gradients(*net);
    reset_gradients(*dense);
    // The bag is used by all ranks, by some, by none.
    const auto with_bag = [&](int64_t rank) {
      return step == 0 || (step == 1 && rank == 2);
    };
    net->forward(words_of(group.rank(), step), with_bag(group.rank()))
        .sum()
        .backward();
    for (int64_t rank = 0; rank < group.size(); ++rank) {
      (dense->forward(words_of(rank, step), with_bag(rank)).sum() / 3)
          .backward();
    }
    const auto& grad = net->table->weight.grad();
    REQUIRE(grad.is_sparse());
    REQUIRE(grad.is_coalesced());
    REQUIRE(
        nearly_equal(grad.to_dense(), dense->table->weight.grad().to_dense()));
    REQUIRE(nearly_equal(net->head->weight.grad(), dense->head->weight.grad()));
    REQUIRE(net->bag->weight.grad().defined() == (step < 2));
    if (step < 2) {
      REQUIRE(nearly_equal(
          net->bag->weight.grad().to_dense(),
          dense->bag->weight.grad().to_dense()));
    }
  }
}

RANKS_TEST("sparse gradients under no_sync and kept ones") {
  WordNet net;
  Reducer reducer(net, group);
  {
    const auto guard = reducer.no_sync();
    net->forward(words_of(group.rank(), 1), false).sum().backward();
  }
  net->forward(words_of(group.rank(), 2), true).sum().backward();
  const auto kept = net->bag->weight.grad().to_dense();
  auto expected = torch::zeros({10, 3});
  const auto row = net->head->weight.detach().sum(0) / 3;
  for (int64_t rank = 0; rank < 3; ++rank) {
    for (const int64_t step : {1, 2}) {
      expected.index_add_(
          0, words_of(rank, step), row.expand({4, 3}).contiguous());
    }
  }
  REQUIRE(nearly_equal(net->table->weight.grad().to_dense(), expected));
  net->forward(words_of(group.rank(), 3), false).sum().backward();
  REQUIRE(net->bag->weight.grad().to_dense().equal(kept));
}

RANKS_TEST("sparse gradients are averaged without the hook") {
  WordNet net;
  Reducer reducer(net, group, with_hook(times(0)));
  net->forward(words_of(group.rank(), 1), true).sum().backward();
  REQUIRE(net->head->weight.grad().count_nonzero().item<int64_t>() == 0);
  const auto& grad = net->table->weight.grad();
  REQUIRE(grad.to_dense().count_nonzero().item<int64_t>() > 0);
  REQUIRE(equal_on_all(group, grad.to_dense()));
}

RANKS_TEST("a sparse gradient that was not announced is refused by name") {
  auto table = torch::ones({5, 2}, torch::requires_grad());
  auto loss = [&] {
    return torch::embedding(
               table, torch::tensor({1, 3}), -1, false, /*sparse=*/true)
        .sum();
  };
  {
    Reducer reducer({table}, group);
    REQUIRE_THROWS_WITH(
        loss().backward(),
        Has("the gradient of parameter 0 is sparse", "sparse_parameters"));
  }
  table.mutable_grad().reset();
  Reducer reducer({table}, group, ReducerOptions().sparse_parameters({"0"}));
  loss().backward();
  REQUIRE(table.grad().is_sparse());
  REQUIRE(nearly_equal(
      table.grad().to_dense().sum(1),
      torch::tensor({0.0f, 2.0f, 0.0f, 2.0f, 0.0f})));
}

} // namespace ddp::test::sparse_gradients_test
