// The comparisons of DDP_DEBUG; flight_records_test.cpp tests its records.
#include <tests/support/debug_jobs.h>
#include <tests/support/mpirun.h>
#include <tests/support/nets.h>
#include <tests/support/sharded.h>

#include <checkpoint/replica_check.h>
#include <ddp/failure/debug_level.h>
#include <ddp/module_state.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddp::test::debug_mode_test {

using std::chrono::seconds;

// The tests find these functions by name in the stacks.
extern "C" __attribute__((noinline)) void ddp_test_reduce(
    const ProcessGroup& group,
    const at::Tensor& tensor) {
  group.all_reduce(tensor);
}

extern "C" __attribute__((noinline)) void ddp_test_differ(
    const ProcessGroup& group,
    const at::Tensor& tensor) {
  group.all_reduce(tensor);
}

/// Rank 1 of 3 or 4 makes a different call. All ranks get the error, and
/// continue.
template <typename Right, typename Wrong>
void differ(
    const ProcessGroup& group,
    const std::string& expected,
    const std::string& wrong_text,
    Right&& right,
    Wrong&& wrong) {
  const auto error =
      error_of<c10::ValueError>([&] { group.rank() == 1 ? wrong() : right(); });
  const std::string others = group.size() == 3 ? "0 and 2" : "0, 2 and 3";
  REQUIRE_THAT(
      error,
      Has("the ranks' calls differ at collective ",
          "\n  ranks " + others + ": " + expected + "\n",
          "\n  rank 1: " + wrong_text + "\n",
          "\nstack of rank 0:\n#0 ",
          "\nstack of rank 1:\n#0 "));
  auto sum = torch::ones({2});
  group.all_reduce(sum);
  REQUIRE(sum[1].item<float>() == static_cast<float>(group.size()));
}

void differ_in_every_way() {
  const auto group = group_with(seconds(30));
  const auto c10d = group.c10d();
  const auto reduce = [&](const at::Tensor& tensor) {
    return [&group, tensor] { group.all_reduce(tensor); };
  };
  const std::string expected = "all_reduce(SUM) of float32 [4]";
  const auto right = reduce(torch::ones({4}));
  differ(
      group,
      expected,
      "all_reduce(SUM) of float32 [5]",
      right,
      reduce(torch::ones({5})));
  differ(
      group,
      expected,
      "all_reduce(SUM) of int64 [4]",
      right,
      reduce(torch::ones({4}, at::kLong)));
  differ(group, expected, "broadcast(root 2) of float32 [4]", right, [&] {
    group.broadcast(torch::ones({4}), 2);
  });
  differ(group, expected, "all_reduce(MAX) of float32 [4]", right, [&] {
    group.all_reduce(torch::ones({4}), ReduceOp::kMax);
  });
  // A direct call of c10d by the program.
  differ(group, expected, "reduce(SUM, root 0) of float32 [4]", right, [&] {
    std::vector<at::Tensor> tensors{torch::ones({4})};
    c10d->reduce(tensors)->wait();
  });
}

void check_record_of_difference(const Job& job, int size) {
  for (int r = 0; r < size; ++r) {
    REQUIRE_THAT(
        job.record(r).at("reason").get<std::string>(),
        Has("the ranks' calls differ at collective 2 of "));
  }
  REQUIRE_THAT(
      report_of(1, {job.folder->path()}),
      Has("collective 2: the ranks' calls differ\n"
          "    ranks 0,",
          ": all_reduce(SUM) of float32 [4]\n",
          "    rank 1: all_reduce(SUM) of float32 [5]\n"));
}

/// Prints a hash of the parameters after five steps.
void train_and_say() {
  const auto group = init_process_group();
  torch::manual_seed(3);
  const auto net = std::make_shared<UnevenNet>();
  Reducer reducer(net, group, ReducerOptions().bucket_cap_mb(0.5).record(true));
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int64_t step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    net->forward(batch(group, step, 7)).pow(2).mean().backward();
    optimizer.step();
  }
  std::cout << "parameters: " << parameter_hash(*net) << ";" << std::endl;
  raise(SIGUSR1);
}

std::string bits_in(const std::string& output) {
  const auto begin = output.find("parameters: ");
  REQUIRE(begin != std::string::npos);
  return output.substr(begin, output.find(';', begin) - begin);
}

TEST_CASE("DDP_DEBUG is off, info or detail") {
  using debug::DebugLevel;
  const auto level = [](const char* value) {
    return debug::debug_level([value](const char* name) {
      REQUIRE(std::string(name) == "DDP_DEBUG");
      return value ? std::optional<std::string>(value) : std::nullopt;
    });
  };
  REQUIRE(level(nullptr) == DebugLevel::kOff);
  REQUIRE(level("") == DebugLevel::kOff);
  REQUIRE(level("off") == DebugLevel::kOff);
  REQUIRE(level("info") == DebugLevel::kInfo);
  REQUIRE(level("detail") == DebugLevel::kDetail);
  REQUIRE_THROWS_AS(level("DETAIL"), c10::ValueError);
}

TEST_CASE("detail: calls that differ are told to all ranks, with stacks") {
  for (const auto& [backend, size] :
       {std::pair<const char*, int>{"gloo", 3},
        {"shm", 4},
        {"hierarchical", 3}}) {
    if (const auto ended = job(size, backend, "detail", differ_in_every_way)) {
      check_record_of_difference(*ended, size);
    }
  }
}

TEST_CASE("detail: calls that differ are told to all ranks over MPI") {
  const auto command = command_of_rank(differ_in_every_way, std::exit);
  // Under a sanitizer there is no command: MPI itself is built without one.
  if (!command) {
    return;
  }
  if (variable("DDP_MPIRUN").empty()) {
    skip("there is no MPI, or no mpirun");
  }
  const TemporaryFolder folder;
  auto environment = command->environment;
  environment.insert(
      {{"DDP_BACKEND", "mpi"},
       {"DDP_DEBUG", "detail"},
       {"DDP_DEBUG_FOLDER", folder.path()}});
  auto arguments = command->arguments;
  arguments.insert(arguments.begin(), {"-n", "3"});
  output_of(arguments, environment);
  REQUIRE(folder.names().size() == 3);
}

TEST_CASE("detail: the stacks name the functions of both sides") {
  job(3, "gloo", "detail", [] {
    const auto group = group_with(seconds(30));
    const auto error = error_of<c10::ValueError>([&] {
      group.rank() == 2 ? ddp_test_differ(group, torch::ones({2, 3}))
                        : ddp_test_reduce(group, torch::ones({3, 2}));
    });
    INFO(error);
    const auto other = error.find("stack of rank 2:");
    REQUIRE(error.find("ddp_test_reduce+0x") < other);
    REQUIRE(error.find("ddp_test_differ+0x", other) != std::string::npos);
    REQUIRE(error.find("ddp::debug::") == std::string::npos);
  });
}

TEST_CASE(
    "detail: a rank 0 that stops holds up nobody longer than the timeout") {
  job(3, "gloo", "detail", [] {
    const auto group = group_with(seconds(4));
    const auto processes = group.all_gather(std::to_string(getpid()));
    if (group.rank() == 0) {
      raise(SIGSTOP);
      return;
    }
    auto sum = torch::ones({2});
    REQUIRE_THROWS_AS(group.all_reduce(sum), c10::DistBackendError);
    if (group.rank() == 1) { // a moment for rank 2's wait to end as well
      std::this_thread::sleep_for(seconds(4));
      kill(std::stoi(processes[0]), SIGCONT);
    }
  });
}

TEST_CASE("detail: a long wait names the rank that is missing") {
  job(3, "gloo", "detail", [] {
    const auto group =
        init_process_group(ProcessGroupOptions().wait_notice(seconds(1)));
    const auto store = group.store();
    const WarningListener listener([&](const std::string& text) {
      REQUIRE_THAT(
          text,
          Has("has waited for 1 s in barrier; rank",
              " of group ddp. All ranks must make the same calls"));
      REQUIRE_THAT(
          text,
          Has("; rank 2 has not reached collective ") ||
              Has(" and 2 have not reached collective "));
      store->set("told", std::string("1"));
    });
    if (group.rank() == 2) {
      store->wait({"told"}, seconds(30));
    }
    group.barrier();
  });
}

TEST_CASE("detail: a rank that waited in vain is not said to have failed") {
  job(3, "gloo", "detail", [] {
    const auto group = group_with(seconds(4));
    const auto store = group.store();
    torch::nn::Linear net(2, 1);
    Reducer reducer(net, group);
    if (group.rank() == 1) {
      store->wait({"failed"}, seconds(30));
    }
    const auto error = error_of([&] {
      net->forward(torch::ones({1, 2})).sum().backward();
    });
    store->set("failed", std::string("1"));
    REQUIRE_THAT(error, Has("rank 1 has not reached it in 4 s"));
    REQUIRE_THAT(error, !Has(" failed because rank "));
    meet_at_store(group, {"0", "1", "2"});
  });
}

TEST_CASE("detail: an error that is common to all ranks is the same on all") {
  job(3, "gloo", "detail", [] {
    const auto group = group_with(seconds(30));
    const auto error = error_of<c10::ValueError>([&] {
      if (group.rank() == 1) {
        detail::fail_on_all(group, "rank 2 has another path");
      }
      group.barrier();
    });
    REQUIRE(error == "rank 2 has another path");
    meet_at_store(group, {"0", "1", "2"});
  });
}

void compare_gradients(const ProcessGroup& group) {
  Zero<torch::optim::SGD> optimizer(
      with_gradients({9, 6}), group, torch::optim::SGDOptions(0.1));
  optimizer.step();
}

void compare_parameters(const ProcessGroup& group) {
  const torch::nn::Linear net(2, 1);
  detail::check_replicas({{"net", net.get()}}, {}, group);
}

TEST_CASE("detail: a comparison of values takes no other error for its own") {
  for (const auto compare : {compare_gradients, compare_parameters}) {
    job(3, "gloo", "detail", [compare] {
      const auto group = group_with(seconds(30));
      const auto warnings = warnings_of([&] {
        const auto error = error_of<c10::ValueError>([&] {
          if (group.rank() == 1) {
            detail::fail_on_all(group, "rank 2 has another path");
          }
          compare(group);
        });
        REQUIRE(error == "rank 2 has another path");
      });
      REQUIRE(warnings.empty());
      meet_at_store(group, {"0", "1", "2"});
    });
  }
}

TEST_CASE("a training has the same bits with DDP_DEBUG=detail") {
  for (const auto& [backend, size] :
       {std::pair<const char*, int>{"gloo", 3}, {"shm", 4}}) {
    const auto without = job(size, backend, "", [] {
      std::signal(SIGUSR1, own_handler);
      train_and_say();
    });
    const auto with = job(size, backend, "detail", train_and_say);
    if (!without || !with) {
      continue;
    }
    for (int r = 0; r < size; ++r) {
      REQUIRE(
          bits_in(without->outcomes[r].output) ==
          bits_in(with->outcomes[r].output));
      REQUIRE_THAT(without->outcomes[r].output, !Has("ddp: group ddp"));
      const auto record = with->record(r).dump();
      REQUIRE_THAT(
          record,
          Has("\"activity\":\"bucket 2 of 2, step 5\"", "\"group\":\"ddp/0\""));
    }
    REQUIRE_THAT(
        with->outcomes[0].output,
        Has("ddp: group ddp: size ",
            "ddp: Reducer ddp/0/reducer_0: trained parameters 6, buckets "));
    REQUIRE_THAT(with->outcomes[1].output, !Has("ddp: group ddp"));
    REQUIRE(without->folder->names().empty());
    report_of(0, {with->folder->path()});
  }
}

} // namespace ddp::test::debug_mode_test
