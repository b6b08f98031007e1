// The notices about long waits.
#include <tests/support/failures.h>

#include <common/heartbeat_page.h>
#include <ddp/ddp.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/process_group/agreement/on_rank_0.h>
#include <ddp/process_group/collective_wait.h>

namespace ddp::test::wait_notice_test {

using std::chrono::seconds;

const auto kSoon = ProcessGroupOptions().wait_notice(seconds(2));

/// Checks the first notice of a wait, and sets `told`. After this wait, another
/// rank may report its own, with newer calls of the others.
std::function<void(const std::string&)> first_notice(
    const c10::intrusive_ptr<c10d::Store>& store,
    const std::string& told,
    const std::function<void(const std::string& text)>& check) {
  return [=](const std::string& text) {
    if (!store->check({told})) {
      check(text);
      store->set(told, "");
    }
  };
}

/// Fails once one rank has reported its wait and another has waited as long.
void fail_after_notice(const ProcessGroup& group) {
  group.store()->wait({"told"});
  std::this_thread::sleep_for(seconds(3)); // not when they tell again
  detail::report_failure(group, "enough");
}

RANKS_TEST("a long wait tells what the others wait in instead", 3, kSoon) {
  const auto path = folder + "net.pt";
  const auto store = group.store();
  auto net = torch::nn::Linear(2, 1);
  Reducer reducer(net, group);
  std::string told;
  const WarningListener listener([&](const std::string& text) {
    told = text;
    store->add("told", 1);
  });
  if (group.rank() == 0) {
    REQUIRE_THROWS(save_checkpoint(path, *net, group));
  } else if (group.rank() == 1) {
    const auto loss = net->forward(torch::ones({1, 2})).sum();
    REQUIRE_THROWS(loss.backward());
  } else {
    fail_after_notice(group);
  }
  meet_at_store(group, {"0", "1", "2"});
  REQUIRE(store->add("told", 0) == 1);
  if (!told.empty()) {
    const bool saves = group.rank() == 0;
    const std::string other = saves ? "1" : "0";
    REQUIRE_THAT(
        told,
        Has("rank " + std::to_string(group.rank()) + " of 3 on",
            saves ? "has waited for 2 s in save_checkpoint(\""
                  : "has waited for 2 s in bucket 1 of 1, step 1;",
            "; rank " + other + " has not reached",
            saves ? ", and is in bucket 1 of 1, step 1;"
                  : ", and is in save_checkpoint(\"",
            "; rank 2 has not reached",
            ", and is in no call to ddp. All ranks must make the same calls, "
            "such as save_checkpoint, in the same order and with the same "
            "shapes. Do all ranks have the same number of batches, and the "
            "same number under no_sync()?"));
  }
}

RANKS_TEST("after a wait that failed, the next one is told of", 2, kSoon) {
  const auto store = group.store();
  std::string key = "told";
  const WarningListener listener(
      [&](const std::string&) { store->set(key, std::string()); });
  const auto other = group.duplicate();
  if (group.rank() == 0) {
    REQUIRE_THROWS(other.barrier());
  } else {
    store->wait({"told"});
    detail::report_failure(other, "enough");
  }
  key = "told again";
  const auto next = group.duplicate();
  if (group.rank() == 0) {
    store->wait({"told again"});
  }
  next.barrier();
}

RANKS_TEST(
    "ranks in different calls are told which",
    3,
    ProcessGroupOptions().backend("shm").timeout(seconds(30))) {
  torch::nn::Linear net(2, 1);
  const auto error = error_of([&] {
    group.rank() == 0 ? (void)manual_seed(1, group) : (void)Reducer(net, group);
  });
  REQUIRE_THAT(
      error,
      Has("; rank 0 waits in manual_seed: broadcast of 1 Long from rank 0; "
          "ranks 1 and 2 wait in Reducer: duplicate. All ranks must make "
          "the same calls, such as save_checkpoint"));
  // All ranks report the same.
  const auto store = group.store();
  store->set("error/" + std::to_string(group.rank()), error);
  for (const auto* key : {"error/0", "error/1", "error/2"}) {
    REQUIRE(store->get_to_str(key) == error);
  }
  meet_at_store(group, {"0", "1", "2"});
}

RANKS_TEST(
    "a Reducer on rank 0 only is told of",
    3,
    ProcessGroupOptions().backend("shm").timeout(seconds(30))) {
  torch::nn::Linear net(2, 1);
  if (group.rank() == 0) {
    REQUIRE_THAT(
        error_of([&] { (void)Reducer(net, group); }),
        Has("Reducer: duplicate over shm failed",
            "has left the group",
            ". All ranks must make the same calls"));
  }
}

RANKS_TEST(
    "each call that waits says what it waits in",
    3,
    ProcessGroupOptions().wait_notice(seconds(1))) {
  const auto file = folder + "net.pt";
  const auto store = group.store();
  torch::nn::Linear net(2, 1);
  Reducer reducer(net, group);
  const auto tensor = torch::ones({2});
  SyncBatchNorm1d norm(2, group);
  const auto rows = torch::rand({4, 2});
  const std::vector<std::pair<std::string, std::function<void()>>> calls{
      {"all_reduce of 2 Float", [&] { group.all_reduce(tensor); }},
      {"all_reduce_async of 2 Float",
       [&] { group.all_reduce_async(tensor).wait(); }},
      {"broadcast_async of 2 Float from rank 1",
       [&] { group.broadcast_async(tensor, 1).wait(); }},
      {"all_gather", [&] { group.all_gather(tensor); }},
      {"broadcast of 2 Float from rank 2", [&] { group.broadcast(tensor, 2); }},
      {"scatter from rank 0: all_gather", [&] { scatter(tensor, group); }},
      {"gather to rank 1: all_gather", [&] { gather(tensor, group, 1); }},
      {"parallel_forward from rank 0 to rank 0: all_gather",
       [&] { parallel_forward(net, rows, group); }},
      {"SyncBatchNorm: all_reduce", [&] { norm->forward(rows); }},
      {"barrier", [&] { group.barrier(); }},
      {"sum: all_gather", [&] { sum(1, group); }},
      {"split", [&] { group.split(0); }},
      {"duplicate", [&] { group.duplicate(); }},
      {"Reducer", [&] { (void)Reducer(torch::nn::Linear(2, 1), group); }},
      {"bucket 1 of 1, step 1",
       [&] {
         net->forward(torch::rand({3, 2})).sum().backward();
       }},
      {"save_checkpoint(\"", [&] { save_checkpoint(file, *net, group); }},
      {"load_checkpoint(\"", [&] { load_checkpoint(file, *net, group); }},
      {"verify_same_parameters", [&] { verify_same_parameters(*net, group); }},
      {"shutdown", [&] { ProcessGroup(group).shutdown(); }}};
  for (const auto& [name, call] : calls) {
    INFO(name);
    const auto told = "told/" + name;
    const auto check = [&, &what = name](const std::string& text) {
      REQUIRE_THAT(text, Has("has waited for 1 s in " + what));
      REQUIRE_THAT(
          text,
          Has("; rank 2 has not reached") || Has(" and 2 have not reached"));
    };
    const WarningListener listener(first_notice(store, told, check));
    if (group.rank() == 2) {
      store->wait({told}); // for as long as the test may take
    }
    call();
    // A root that does not wait would start the next call.
    store->add("ended/" + name, 1);
    while (store->add("ended/" + name, 0) < group.size()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

RANKS_TEST(
    "a wait is named by its own thread's call",
    3,
    ProcessGroupOptions().wait_notice(seconds(1))) {
  const auto store = group.store();
  const auto check = [](const std::string& text) {
    REQUIRE_THAT(text, Has("has waited for 1 s in barrier"));
  };
  const WarningListener listener(first_notice(store, "told", check));
  if (group.rank() == 2) {
    store->wait({"told"});
    group.barrier();
    return;
  }
  std::future<void> other;
  std::promise<void> waits; // its end is that of `other`
  other = std::async(std::launch::async, [end = waits.get_future()] {
    char call[HeartbeatPage::kActivitySize];
    becomes_true([&] {
      detail::heartbeat::copy_activity(call, sizeof(call));
      return call == std::string("barrier");
    });
    const detail::heartbeat::Activity activity("another call");
    end.wait();
  });
  group.barrier();
}

RANKS_TEST(
    "a wait is told of once, also where no store says who tells",
    3,
    ProcessGroupOptions().wait_notice(seconds(1))) {
  detail::ProcessGroupImpl::of(group).failure_store.reset();
  int told = 0;
  const WarningListener listener([&](const std::string&) { ++told; });
  if (group.rank() == 2) {
    std::this_thread::sleep_for(seconds(4));
  }
  group.barrier();
  REQUIRE(told == (group.rank() == 2 ? 0 : 1));
}

RANKS_TEST(
    "the wait for rank 0's buffers says what it is",
    3,
    ProcessGroupOptions().backend("gloo").wait_notice(seconds(1))) {
  torch::nn::BatchNorm1d net(2);
  Reducer reducer(
      net, group, ReducerOptions().unmanaged_leaves(Severity::kIgnore));
  const auto store = group.store();
  const auto check = [](const std::string& text) {
    REQUIRE_THAT(text, Has("has waited for 1 s in broadcast of buffers"));
  };
  const WarningListener listener(first_notice(store, "told", check));
  for (int step = 0; step < 5; ++step) {
    const auto rows = torch::rand({4, 2}).requires_grad_().clone();
    rows.register_hook([&](const at::Tensor&) {
      if (step == 4 && group.rank() == 0) { // its buckets are launched
        store->wait({"told"});
      }
    });
    net->forward(rows).pow(2).sum().backward();
  }
}

RANKS_TEST(
    "a rank 0 that takes its time to write is said to be in that",
    3,
    ProcessGroupOptions().wait_notice(seconds(3))) {
  const auto store = group.store();
  const auto check = [](const std::string& text) {
    REQUIRE_THAT(text, Has("rank 0 has not reached", "and is in save"));
  };
  const WarningListener listener(first_notice(store, "told", check));
  if (group.rank() != 0) {
    store->wait({"begun"});
  }
  detail::on_rank_0("save", group, [&] {
    store->set("begun", "");
    store->wait({"told"});
  });
}

RANKS_TEST("one backward more than the others has an error with remedies") {
  torch::nn::Linear net(2, 1);
  Reducer reducer(net, group);
  const auto backward = [&] {
    net->forward(torch::rand({3, 2})).sum().backward();
  };
  backward();
  if (group.rank() == 0) {
    REQUIRE_THAT(
        error_of(backward),
        Has("bucket 1 of 1, step 2: the reduction of",
            "Do all ranks have the same number of batches",
            "no_sync()",
            "DistributedSampler",
            "drop_last",
            "join()"));
  }
}

/// The rest of a backward starts after the reduction has ended or failed.
struct SlowHook : CommHook {
  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override {
    auto future = AllReduceHook().run(bucket, group);
    if (bucket.iteration > 0) {
      future->wait();
    }
    return future;
  }
};

void expect_remedies_about_batches(
    const ProcessGroup& group,
    const ReducerOptions& options) {
  torch::nn::Sequential net(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3));
  Reducer reducer(net, group, options);
  const auto backward = [&] {
    net->forward(torch::rand({3, 2})).sum().backward();
  };
  backward();
  if (group.rank() < 2) {
    const auto error = error_of(backward);
    REQUIRE_THAT(error, Has("Do all ranks have the same number of batches"));
    REQUIRE_THAT(error, !Has("broadcast_async of"));
  }
}

RANKS_TEST(
    "a net with buffers has the same remedies when a rank has left",
    3,
    ProcessGroupOptions().backend("shm")) {
  expect_remedies_about_batches(group, ReducerOptions());
}

RANKS_TEST(
    "buffers that follow a failed reduction have the same remedies",
    3,
    ProcessGroupOptions().backend("shm")) {
  expect_remedies_about_batches(
      group, ReducerOptions().comm_hook(std::make_shared<SlowHook>()));
}

RANKS_TEST(
    "ranks in the backwards of different Reducers are told whose",
    3,
    kSoon) {
  const auto store = group.store();
  using Net = torch::OrderedDict<std::string, torch::Tensor>;
  const auto weight = [] { return torch::ones({2}).requires_grad_(); };
  // All Sequentials have the same names.
  const Net generator{{"0.weight", weight()}};
  const Net critic{{"0.weight", weight()}, {"0.bias", weight()}};
  Reducer generates(generator, group), criticises(critic, group);
  std::string told;
  const WarningListener listener([&](const std::string& text) {
    told = text;
    store->add("told", 1);
  });
  if (group.rank() == 2) {
    fail_after_notice(group);
  } else { // rank 1 skips the critic
    const auto& net = group.rank() == 0 ? critic : generator;
    REQUIRE_THROWS(net[0].value().sum().backward());
  }
  meet_at_store(group, {"0", "1", "2"});
  REQUIRE(store->add("told", 0) == 1);
  if (!told.empty()) {
    const std::string of_critic =
        "bucket 1 of 1, step 1 of Reducer 2, of '0.weight' (2 parameters)";
    const std::string of_generator =
        "bucket 1 of 1, step 1 of Reducer 1, of '0.weight' (1 parameter)";
    const bool criticised = group.rank() == 0;
    REQUIRE_THAT(
        told,
        Has("has waited for 2 s in " + (criticised ? of_critic : of_generator),
            "and is in " + (criticised ? of_generator : of_critic),
            "run the backward passes of all Reducers, equally "
            "often and in the same order"));
  }
}

RANKS_TEST("of ranks that wait for the same one tells", 4, kSoon) {
  const auto store = group.store();
  int64_t told = 0;
  const WarningListener listener([&](const std::string&) {
    ++told;
    store->set("told", "");
  });
  if (group.rank() == 3) {
    store->wait({"told"});
    // The others must have waited as long too, but not be about to tell again.
    std::this_thread::sleep_for(seconds(3));
  }
  group.barrier();
  auto count = torch::full({1}, told);
  group.all_reduce(count);
  REQUIRE(count.item<int64_t>() == 1);
}

} // namespace ddp::test::wait_notice_test
