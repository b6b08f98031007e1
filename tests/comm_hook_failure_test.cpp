#include <tests/support/comm_hooks.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer.h>

namespace ddp::test::comm_hook_failure_test {

/// The text with which a backward fails, or none.
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
          failure_of(*net, group),
          Has("construct the Reducer anew", "no luck"));
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
  require_failure(
      group,
      "the communication hook's result has 5 elements",
      [](const GradBucket&, const ProcessGroup&) {
        return completed(torch::zeros({5}));
      });
  require_failure(
      group,
      "the communication hook's future holds a Int",
      [](const GradBucket&, const ProcessGroup&) {
        return completed(c10::IValue(3));
      });
  require_failure(
      group,
      "result is an undefined tensor",
      [](const GradBucket&, const ProcessGroup&) {
        return completed(at::Tensor());
      });
  require_failure(
      group,
      "the communication hook's result has 3 elements",
      [](const GradBucket& bucket, const ProcessGroup&) {
        return completed(bucket.buffer.narrow(0, 0, 3)); // an alias
      });
}

RANKS_TEST("a hook that returns no future is refused") {
  require_failure(
      group, "returned no future", [](const GradBucket&, const ProcessGroup&) {
        return Future();
      });
}

RANKS_TEST("what a hook throws need not be a std::exception") {
  auto net = std::make_shared<BranchNet>();
  Reducer reducer(
      net,
      group,
      with_hook(custom(
          [](const GradBucket&, const ProcessGroup&) -> Future { throw 7; })));
  const auto backward = [&] {
    net->forward(batch(group, 0, 4), true).sum().backward();
  };
  REQUIRE_THROWS_AS(backward(), int);
  REQUIRE_THROWS_WITH(backward(), Has("construct the Reducer anew"));
}

} // namespace ddp::test::comm_hook_failure_test
