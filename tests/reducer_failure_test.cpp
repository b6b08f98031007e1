#include <ddp/distributed_data_parallel.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer.h>
#include <tests/support/comm_hooks.h>
#include <tests/support/failures.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <torch/nn/modules/embedding.h>

namespace ddp::test::reducer_failure_test {

// The timeout of a group is ten minutes here: a test whose ranks do not fail at
// once hangs until the harness ends it.

void backward(UnevenNet& net, const ProcessGroup& group) {
  const auto dtype = net.first->weight.scalar_type();
  net.forward(batch(group, 3, 7).to(dtype)).pow(2).sum().backward();
}

/// `fail` on rank 1, a backward on the others, which must throw with `text`.
void one_fails(
    const std::string& text,
    const std::function<void(std::shared_ptr<UnevenNet>, Reducer&)>& fail) {
  ranks(3, [&](ProcessGroup group) {
    auto net = std::make_shared<UnevenNet>();
    auto reducer = std::make_unique<Reducer>(net, group);
    backward(*net, group);
    if (group.rank() == 1) {
      try {
        const auto own = std::move(reducer);
        fail(net, *own);
        FAIL("it did not throw");
      } catch (const std::exception&) {
      }
      group.barrier(); // alive until the others have failed
    } else {
      REQUIRE_THROWS_WITH(backward(*net, group), Has("rank 1 of 3", text));
      group.barrier();
    }
  });
}

TEST_CASE("an exception in one rank's backward reaches the others") {
  one_fails(
      "an exception ended its backward pass",
      [](std::shared_ptr<UnevenNet> net, Reducer&) {
        net->first->weight.register_hook(
            [](at::Tensor) -> at::Tensor { TORCH_CHECK(false, "on purpose"); });
        net->forward(torch::ones({1, 7})).sum().backward();
      });
}

TEST_CASE("an exception in one rank's forward reaches the others") {
  one_fails(
      "an exception ended its training loop after step 1; see the output of "
      "that rank",
      [](std::shared_ptr<UnevenNet> net, Reducer&) {
        net->forward(torch::ones({1, 8}));
      });
}

TEST_CASE("what one rank's Reducer finds wrong reaches the others") {
  one_fails("now it is Double [", [](std::shared_ptr<UnevenNet> net, Reducer&) {
    net->to(torch::kDouble);
    net->forward(torch::ones({1, 7}, torch::kDouble)).sum().backward();
  });
}

RANKS_TEST(
    "a rank whose backward reaches no parameter is named",
    3,
    {},
    RankOptions().environment({{"DDP_TIMEOUT", "4"}})) {
  auto net = std::make_shared<UnevenNet>();
  Reducer reducer(net, group);
  backward(*net, group);
  if (group.rank() == 1) {
    torch::ones({1}, torch::requires_grad()).sum().backward();
  } else {
    REQUIRE_THROWS_WITH(
        backward(*net, group),
        Has("rank 1 has not reached", "finish_backward"));
  }
  // Not over gloo, where rank 1 would time out too, and maybe first.
  meet_at_store(group, {"0", "1", "2"});
}

RANKS_TEST(
    "who does not come to a reduction is named after a long wait too",
    3,
    ProcessGroupOptions().timeout(std::chrono::seconds(8)),
    RankOptions().timeout(std::chrono::seconds(120))) {
  const auto check = [](const ProcessGroup& own,
                        const std::function<void()>& step) {
    step();
    if (own.rank() == 0) { // long enough for a wait to be reported
      std::this_thread::sleep_for(std::chrono::seconds(3));
    }
    step();
    if (own.rank() != 2) {
      REQUIRE_THAT(
          error_of(step),
          Has("ranks 0 and 1 wait in ", "; rank 2 has not reached"));
    }
    meet_at_store(own, {"0", "1", "2"});
  };
  const auto dense_group = group.duplicate();
  auto net = std::make_shared<UnevenNet>();
  Reducer dense(net, dense_group);
  check(dense_group, [&] { backward(*net, group); });
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 3).sparse(true));
  Reducer sparse(*table, group);
  check(group, [&] { table->forward(torch::arange(4)).sum().backward(); });
}

RANKS_TEST("a rank that fails in a join of two Reducers is named") {
  auto first = std::make_shared<UnevenNet>();
  auto second = std::make_shared<UnevenNet>();
  const auto train = [&] {
    Reducer of_first(first, group), of_second(second, group);
    Join join(group, {of_first.joinable(), of_second.joinable()});
    TORCH_CHECK(group.rank() != 1, "on purpose");
    backward(*first, group);
    backward(*second, group);
  };
  const auto error = words_of(train);
  if (group.rank() == 1) {
    REQUIRE_THAT(error, Has("on purpose"));
  } else {
    REQUIRE_THAT(
        error,
        Has("Join: all_reduce over",
            "because rank 1 of 3",
            "an exception ended its training loop"));
    REQUIRE_THAT(error, !Has("; rank ")); // waiting is no failure
  }
  // The others have started a collective that rank 1 has not.
  REQUIRE_THAT(
      words_of([&] { group.barrier(); }),
      Has("Join", "failed because rank 1 of 3"));
  meet_at_store(group, {"0", "1", "2"});
}

TEST_CASE("where the store's process is stopped the others' waits still end") {
  // Each case makes a different request to the store.
  for (const std::string asks : {"unused", "unfrozen", "buckets"}) {
    ranks(3, [asks] {
      const auto group = init_process_group(
          ProcessGroupOptions().timeout(std::chrono::seconds(5)));
      auto net = std::make_shared<UnevenNet>();
      net->last->weight.set_requires_grad(asks == "unused");
      Reducer reducer(net, group);
      const auto step = [&] {
        const auto input = batch(group, 0, 7);
        asks == "unused" ? net->first->forward(input).sum().backward()
                         : net->forward(input).sum().backward();
      };
      step();
      if (asks == "unfrozen") {
        net->last->weight.set_requires_grad(true);
      }
      const auto processes = group.all_gather(std::to_string(getpid()));
      if (group.rank() == 0) {
        // After the others have written their keys to the store.
        std::this_thread::sleep_for(std::chrono::seconds(1));
        raise(SIGSTOP);
        return;
      }
      REQUIRE_THROWS(step());
      if (group.rank() == 1) { // until rank 2's wait has ended too
        std::this_thread::sleep_for(std::chrono::seconds(3));
        kill(std::stoi(processes[0]), SIGCONT);
      }
    });
  }
}

RANKS_TEST("a rank that fails is named where ranks compare what is unfrozen") {
  auto net = std::make_shared<UnevenNet>();
  net->wide->weight.set_requires_grad(false);
  auto reducer = std::make_unique<Reducer>(net, group);
  backward(*net, group);
  net->wide->weight.set_requires_grad(true);
  if (group.rank() == 1) {
    net->first->weight.register_hook(
        [](at::Tensor) -> at::Tensor { TORCH_CHECK(false, "on purpose"); });
    REQUIRE_THROWS_WITH(backward(*net, group), Has("on purpose"));
  } else {
    REQUIRE_THROWS_WITH(
        backward(*net, group),
        Has("rank 1 of 3", "an exception ended its backward pass"));
  }
  group.barrier();
}

/// The error of a backward, or an empty string.
std::string failure_of(BranchNet& net, const ProcessGroup& group) {
  try {
    net.forward(batch(group, 0, 4), true).sum().backward();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// Requires that the first backward with a hook fails with `text`.
void require_failure(
    const ProcessGroup& group,
    const std::string& text,
    const CustomHook::Function& function) {
  auto net = std::make_shared<BranchNet>();
  Reducer reducer(net, group, with_hook(custom(function)));
  REQUIRE_THAT(failure_of(*net, group), Has(text));
}

RANKS_TEST("what a hook throws ends backward with its text") {
  require_failure(
      group,
      "no luck with bucket 0",
      [](const GradBucket& bucket, const ProcessGroup&) -> Future {
        TORCH_CHECK(false, "no luck with bucket ", bucket.index);
      });
  require_failure(
      group,
      "not one of LibTorch's",
      [](const GradBucket&, const ProcessGroup&) -> Future {
        throw std::runtime_error("not one of LibTorch's");
      });
}

RANKS_TEST("after a hook failed each later backward says so") {
  for (const int good : {0, 1, 2}) { // steps before it fails
    auto net = std::make_shared<BranchNet>();
    int left = good;
    const auto fail = [&](const GradBucket& bucket, const ProcessGroup& own) {
      TORCH_CHECK(left-- > 0, "no luck");
      return sum(bucket.buffer, own);
    };
    Reducer reducer(net, group, with_hook(custom(fail)));
    for (int step = 0; step < good; ++step) {
      REQUIRE(failure_of(*net, group).empty());
    }
    REQUIRE_THAT(failure_of(*net, group), Has("no luck"));
    INFO("after " << good);
    for (int again = 0; again < 2; ++again) {
      REQUIRE_THAT(
          failure_of(*net, group), Has("construct a new Reducer", "no luck"));
    }
  }
}

RANKS_TEST("once its group has failed a backward launches no more buckets") {
  auto net = std::make_shared<BranchNet>();
  int launches = 0;
  const auto break_group = [&](const GradBucket& bucket,
                               const ProcessGroup& own) {
    ++launches;
    detail::report_failure(own, "no luck");
    return completed(bucket.buffer);
  };
  Reducer reducer(
      net,
      group,
      with_hook(custom(break_group))
          .find_unused_parameters(true)
          .bucket_cap_mb(0.00001));
  REQUIRE(reducer.buckets().size() > 1);
  REQUIRE_THAT(failure_of(*net, group), Has("no luck"));
  REQUIRE(launches == 1);
}

RANKS_TEST("a hook's future that fails ends backward with its text") {
  require_failure(
      group,
      "compression failed",
      [](const GradBucket& bucket, const ProcessGroup& own) {
        return sum(bucket.buffer, own)
            ->then(
                [](c10::ivalue::Future& /*future*/) -> c10::IValue {
                  throw std::runtime_error("compression failed");
                },
                c10::TensorType::get());
      });
}

RANKS_TEST("a hook's result that does not fit the bucket is refused") {
  const auto rejected = [&](const std::string& text, const Future& result) {
    require_failure(group, text, [&](const GradBucket&, const ProcessGroup&) {
      return result;
    });
  };
  rejected("hook's result has 5 elements", completed(torch::zeros({5})));
  rejected("hook's future contains a value of type Int", completed(3));
  rejected("result is an undefined tensor", completed(at::Tensor()));
  rejected("returned no future", Future());
  require_failure(
      group,
      "the communication hook's result has 3 elements",
      [](const GradBucket& bucket, const ProcessGroup&) {
        return completed(bucket.buffer.narrow(0, 0, 3)); // an alias
      });
}

RANKS_TEST("what a hook throws need not be a std::exception") {
  const auto hook =
      custom([](const GradBucket&, const ProcessGroup&) -> Future { throw 7; });
  auto net = std::make_shared<BranchNet>();
  Reducer reducer(net, group, with_hook(hook));
  REQUIRE_THROWS_AS(failure_of(*net, group), int);
  REQUIRE_THAT(failure_of(*net, group), Has("construct a new Reducer"));
}

} // namespace ddp::test::reducer_failure_test
