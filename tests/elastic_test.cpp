// A rank whose group changes; this test replaces ddprun.
#include <tests/support/elastic_job.h>
#include <tests/support/ivalue_text.h>

#include <ddp/ddp.h>
#include <ddp/environment/environment.h>
#include <ddp/failure/elastic_pause.h>

#include <nlohmann/json.hpp>

namespace ddp::test::elastic_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kSteps = 400;

void say(const std::string& text) {
  const auto line = text + "\n";
  REQUIRE(write(STDOUT_FILENO, line.data(), line.size()) > 0);
}

/// Records in the state the number of ranks of each step.
void train(int64_t commit_every = 1) {
  const auto options = ElasticOptions().commit_every(commit_every);
  const auto body = [&](ElasticRun& run) {
    const auto group = run.group();
    auto sizes = torch::zeros({kSteps});
    int64_t step = 0;
    TrainingState state;
    state.add("sizes", sizes).add("step", step);
    const bool found = run.sync(state);
    REQUIRE(found == (step > 0));
    REQUIRE(step % commit_every == 0); // if a rank was lost
    REQUIRE(sizes.gt(0).sum().item<int64_t>() == step);
    while (step < kSteps) {
      auto size = torch::ones({1});
      group.all_reduce(size);
      sizes[step++] = size[0];
      if (step == 3 || step == kSteps / 2) {
        say(c10::str("rank ", group.rank(), " did step ", step, "."));
      }
      std::this_thread::sleep_for(milliseconds(2));
      run.step();
    }
    REQUIRE(sizes.gt(0).all().item<bool>());
    say(c10::str(
        "first by ",
        sizes[0].item<int64_t>(),
        ", last by ",
        sizes[-1].item<int64_t>(),
        "."));
  };
  elastic(body, options);
}

STARTED_TEST("without ddprun the function is called once") {
  int calls = 0;
  elastic([&](ElasticRun& run) {
    ++calls;
    REQUIRE(run.group().size() == 3);
    int64_t number = 7;
    TrainingState state;
    state.add("number", number);
    REQUIRE(!run.sync(state));
    for (int step = 0; step < 3; ++step) {
      run.group().barrier();
      run.step();
    }
    REQUIRE(number == 7);
  });
  REQUIRE(calls == 1);
}

STARTED_TEST("a state that is sharded over ranks cannot be kept by each") {
  elastic([&](ElasticRun& run) {
    ZeroRedundancyOptimizer<torch::optim::Adam> adam(
        std::vector<torch::Tensor>{torch::ones({2}).requires_grad_()},
        run.group());
    TrainingState state;
    state.add("adam", adam);
    REQUIRE_THROWS_WITH(run.sync(state), Has("\"adam\" is sharded"));
  });
}

TEST_CASE("what the function throws is the caller's") {
  REQUIRE_THROWS_AS(
      elastic([](ElasticRun&) { throw std::logic_error("mine"); }),
      std::logic_error);
  REQUIRE_THROWS_AS(
      elastic([](ElasticRun&) {}, ElasticOptions().commit_every(0)),
      c10::ValueError);
  REQUIRE_THROWS_AS(
      elastic(
          [](ElasticRun&) {},
          ElasticOptions().group(ProcessGroupOptions().rank(0))),
      c10::ValueError);
}

TEST_CASE("ranks go on in a larger group, at the same step") {
  for (const auto* backend : {"gloo", "shm"}) {
    ElasticJob job(
        4, [] { train(); }, backend);
    if (!job.is_here()) {
      continue;
    }
    job.start_all(3);
    REQUIRE(job.process(2).wait_for("did step 3.", kLong));
    job.ask({1}); // one is enough for all to leave the step together
    std::this_thread::sleep_for(milliseconds(100));
    job.ask({0, 2});
    job.wait_for_pause({0, 1, 2});
    job.start(0, 4); // has no state, but is rank 0
    for (const int each : {0, 1, 2}) {
      job.go_on(each, 3 - each, 4);
    }
    job.require_end({0, 1, 2, 3}, "first by 3, last by 4.");
  }
}

TEST_CASE("ranks go on without one that died or hangs") {
  for (const auto* backend : {"gloo", "shm"}) {
    for (const int signal : {SIGKILL, SIGSTOP}) {
      ElasticJob job(
          4, [&] { train(signal == SIGKILL ? 3 : 1); }, backend);
      if (!job.is_here()) {
        continue;
      }
      job.start_all(4);
      REQUIRE(job.process(1).wait_for("did step 3.", kLong));
      job.process(3).signal(signal);
      std::this_thread::sleep_for(milliseconds(300));
      for (const size_t each : {0, 1, 2}) {
        job.page(each).step_patience = 100;
      }
      job.pause({0, 1, 2});
      job.process(3).signal(SIGKILL);
      for (const int each : {0, 1, 2}) {
        job.go_on(each, each, 3);
      }
      job.require_end({0, 1, 2}, "first by 4, last by 3.");
    }
  }
}

TEST_CASE("with DDP_DEBUG=detail, too, ranks go on, each with a new record") {
  ElasticJob job(3, [] {
    elastic([](ElasticRun& run) {
      const auto& group = run.group();
      if (group.size() == 3) {
        say("trains.");
        if (group.rank() == 1) { // it hangs
          raise(SIGSTOP);
        }
        for (;;) {
          group.barrier();
          run.step();
        }
      }
      raise(SIGUSR1);
      group.barrier();
      const auto record = nlohmann::json::parse(read_text(
          variable("DDP_DEBUG_FOLDER") + "/rank_" +
          std::to_string(group.rank()) + ".json"));
      REQUIRE(record.at("process") == getpid());
      REQUIRE(record.at("reason") == "SIGUSR1");
      say("ends.");
    });
  });
  const TemporaryFolder folder;
  const Environment debug{
      {"DDP_DEBUG", "detail"}, {"DDP_DEBUG_FOLDER", folder.path()}};
  job.start_all(3, debug);
  REQUIRE(job.process(1).wait_for("trains.", kLong));
  job.page(0).step_patience = job.page(2).step_patience = 100;
  job.pause({0, 2});
  job.process(1).signal(SIGKILL);
  job.go_on(0, 0, 2);
  job.go_on(2, 1, 2);
  job.require_end({0, 2}, "ends.");
}

TEST_CASE("a signal while the nodes change stops the training after it") {
  ElasticJob job(3, [] {
    elastic([&](ElasticRun& run) {
      StopSignal stop(run.group(), {SIGUSR1});
      say("trains.");
      while (!stop.requested()) {
        run.step();
      }
      say("stopped.");
    });
  });
  job.start_all(3);
  REQUIRE(job.process(0).wait_for("trains.", kLong));
  job.pause({0, 1, 2});
  job.process(1).signal(SIGUSR1);
  for (const int each : {0, 1, 2}) {
    job.go_on(each, each, 3);
  }
  job.require_end({0, 1, 2}, "stopped.");
}

TEST_CASE("a change in place after a commit was loaded is not committed") {
  ElasticJob job(2, [] {
    int calls = 0;
    elastic([&](ElasticRun& run) {
      ++calls;
      auto values = torch::zeros({1});
      TrainingState state;
      state.add("values", values);
      REQUIRE(run.sync(state) == (calls > 1));
      if (calls == 1) {
        say("trains.");
        for (;;) {
          run.step();
        }
      }
      if (calls == 2) {
        values.add_(1);
        say("changed.");
        while (run.group().rank() == 1) { // it is lost in this step
          ::pause();
        }
        run.group().barrier();
      }
      say(c10::str("holds ", values.item<int>(), "."));
    });
  });
  job.train_and_regroup();
  for (const size_t each : {0, 1}) {
    REQUIRE(job.process(each).wait_for("changed.", kLong));
  }
  job.process(1).signal(SIGKILL);
  job.page(0).step_patience = 100;
  job.pause({0});
  job.go_on(0, 0, 1);
  job.require_end({0}, "holds 0.");
}

TEST_CASE("steps that are repeated are saved again") {
  ElasticJob job(2, [] {
    const TemporaryFolder folder; // of which rank 0's is used
    elastic([&](ElasticRun& run) {
      int64_t step = 0;
      TrainingState state;
      state.add("step", step);
      CheckpointManager checkpoints(
          run.group().broadcast(folder.path()), state, run.group());
      if (!run.sync(state)) {
        checkpoints.save(3);
        say("trains.");
        for (;;) {
          run.step();
        }
      }
      checkpoints.save(2);
      checkpoints.save(3);
      say("saved.");
    });
  });
  job.train_and_regroup();
  job.require_end({0, 1}, "saved.");
}

TEST_CASE("each rank keeps its random states, and rank 0 tells so") {
  ElasticJob job(2, [] {
    int calls = 0;
    elastic([&](ElasticRun& run) {
      ++calls;
      int64_t number = 0;
      torch::manual_seed(10 * calls + run.group().rank());
      std::mt19937 own(10 * calls + run.group().rank());
      TrainingState state;
      state.add("number", number).add_random_state();
      state.add_generator("own", own);
      const auto before = state.state_dict();
      REQUIRE(run.sync(state) == (calls > 1));
      if (calls == 1) {
        number = 7;
        run.step();
        say("trains.");
        for (;;) {
          run.step();
        }
      }
      const auto after = state.state_dict();
      for (const auto* part : {"random_state", "own"}) {
        REQUIRE((text_of(entry(after, part)) == text_of(entry(before, part))));
      }
      say(c10::str("number ", number, "."));
    });
  });
  job.train_and_regroup();
  const auto told = Has("sync did not change 'random_state', 'own', which");
  const auto first = output_of(job.process(0).finish(kLong));
  REQUIRE_THAT(first, Has("number 7.") && told);
  const auto second = output_of(job.process(1).finish(kLong));
  REQUIRE_THAT(second, Has("number 7.") && !told);
}

TEST_CASE("nodes that come too late find the training finished") {
  ElasticJob job(3, [] {
    int calls = 0;
    elastic([&](ElasticRun& run) {
      ++calls;
      run.group().barrier();
      say("trains.");
      std::this_thread::sleep_for(milliseconds(500)); // pause requested
    });
    say(c10::str("called ", calls, " times."));
  });
  job.start_all(2);
  job.pause({0, 1});
  job.start(0, 3);
  job.go_on(0, 1, 3);
  job.go_on(1, 2, 3);
  job.require_end({0, 1}, "called 1 times.");
  job.require_end({2}, "called 0 times.");
}

TEST_CASE("a pause sets variables while other threads read some") {
  RankPage page{};
  detail::elastic_pause::attach(&page.elastic);
  const auto variable = process_environment();
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!done) {
        variable("DDP_TEST_NOT_SET"); // reads the environment
        std::this_thread::sleep_for(std::chrono::microseconds(10));
      }
    });
  }
  for (int i = 0; i < 3000; ++i) {
    const auto line = "DDP_TEST_" + std::to_string(i) + "=1\n";
    std::strcpy(page.elastic.variables, line.c_str());
    detail::elastic_pause::make();
  }
  done = true;
  for (auto& reader : readers) {
    reader.join();
  }
  detail::elastic_pause::attach(nullptr);
  REQUIRE(variable("DDP_TEST_2999") == "1");
}

} // namespace ddp::test::elastic_test
