#include <tests/support/catch.h>
#include <tests/support/mpirun.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/temporary_folder.h>

#include <ddp/debug/level.h>
#include <ddp/reducer.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

using ddp::ProcessGroup;
using ddp::test::command_of_rank;
using ddp::test::commands_of_ranks;
using ddp::test::Outcome;
using ddp::test::Process;
using ddp::test::TemporaryFolder;
using nlohmann::json;
using std::chrono::seconds;

// By their names they are found in the stacks.
extern "C" __attribute__((noinline)) void ddp_test_reduce(
    const ddp::ProcessGroup& group,
    const at::Tensor& tensor) {
  group.all_reduce(tensor);
}

extern "C" __attribute__((noinline)) void ddp_test_differ(
    const ddp::ProcessGroup& group,
    const at::Tensor& tensor) {
  group.all_reduce(tensor);
}

namespace {

/// How a job's ranks ended and what they left.
struct Job {
  std::vector<Outcome> outcomes;
  std::unique_ptr<TemporaryFolder> folder;

  std::string path(int rank) const {
    return *folder / ("rank_" + std::to_string(rank) + ".json");
  }
  bool has_record(int rank) const {
    return std::filesystem::exists(path(rank));
  }
  json record(int rank) const {
    return json::parse(ddp::test::read_text(path(rank)));
  }
  std::string all_output() const {
    std::string text;
    for (const auto& outcome : outcomes) {
      text += outcome.output;
    }
    return text;
  }
};

std::vector<ddp::test::Command> commands_in(
    const TemporaryFolder& folder,
    std::vector<ddp::test::Command> commands) {
  for (auto& command : commands) {
    command.environment["DDP_DEBUG_FOLDER"] = folder.path();
  }
  return commands;
}

/// Runs `body` on each rank; nothing in a rank of another call.
std::optional<Job> job(
    int size,
    const std::string& backend,
    const std::string& level,
    const std::function<void()>& body,
    const std::vector<int>& exit_codes = {}) {
  auto commands = commands_of_ranks(
      size, body, {{"DDP_BACKEND", backend}, {"DDP_DEBUG", level}});
  if (commands.empty()) {
    return std::nullopt;
  }
  Job result;
  result.folder = std::make_unique<TemporaryFolder>();
  result.outcomes =
      run(commands_in(*result.folder, std::move(commands)), seconds(60));
  for (int r = 0; r < size; ++r) {
    const auto& outcome = result.outcomes.at(r);
    INFO("rank " << r << " over " << backend << ":\n" << outcome.output);
    REQUIRE(outcome.exit_code == (exit_codes.empty() ? 0 : exit_codes.at(r)));
  }
  return result;
}

/// What ddp-flightrecorder says, which ends with this code.
std::string report_of(int exit_code, const std::vector<std::string>& paths) {
  const char* program = std::getenv("DDP_FLIGHTRECORDER");
  REQUIRE(program != nullptr);
  ddp::test::Command command{{program}, {}};
  command.arguments.insert(command.arguments.end(), paths.begin(), paths.end());
  const auto outcome = run(command, seconds(60));
  INFO(outcome.output);
  REQUIRE(outcome.exit_code == exit_code);
  return outcome.output;
}

ProcessGroup group_with(seconds timeout) {
  return ddp::init_process_group(ddp::ProcessGroupOptions().timeout(timeout));
}

template <typename Error, typename Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  FAIL("nothing was thrown");
  return "";
}

/// Rank 1 of 3 or 4 does something else than the others. All ranks hear of it,
/// and go on.
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
      ContainsSubstring("the ranks' calls differ at collective ") &&
          ContainsSubstring("\n  ranks " + others + ": " + expected + "\n") &&
          ContainsSubstring("\n  rank 1: " + wrong_text + "\n") &&
          ContainsSubstring("\nstack of rank 0:\n#0 ") &&
          ContainsSubstring("\nstack of rank 1:\n#0 "));
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
    group.all_reduce(torch::ones({4}), ddp::ReduceOp::kMax);
  });
  // What the program does with c10d itself.
  differ(group, expected, "reduce(SUM, root 0) of float32 [4]", right, [&] {
    std::vector<at::Tensor> tensors{torch::ones({4})};
    c10d->reduce(tensors)->wait();
  });
}

void check_record_of_difference(const Job& job, int size) {
  for (int r = 0; r < size; ++r) {
    REQUIRE_THAT(
        job.record(r).at("reason").get<std::string>(),
        ContainsSubstring("the ranks' calls differ at collective 2 of "));
  }
  REQUIRE_THAT(
      report_of(1, {job.folder->path()}),
      ContainsSubstring("collective 2: the ranks' calls differ\n"
                        "    ranks 0,") &&
          ContainsSubstring(": all_reduce(SUM) of float32 [4]\n") &&
          ContainsSubstring("    rank 1: all_reduce(SUM) of float32 [5]\n"));
}

/// The parameters' bits after five steps, of each of which some buckets differ.
void train_and_say() {
  const auto group = ddp::init_process_group();
  torch::manual_seed(3);
  const auto net = std::make_shared<ddp::test::UnevenNet>();
  ddp::Reducer reducer(
      net, group, ddp::ReducerOptions().bucket_cap_mb(0.5).record(true));
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int64_t step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    net->forward(ddp::test::batch(group, step, 7)).pow(2).mean().backward();
    optimizer.step();
  }
  double sum = 0;
  uint64_t bits = 0;
  for (const auto& parameter : net->parameters()) {
    const auto flat = parameter.detach().reshape({-1}).contiguous();
    const auto* words =
        reinterpret_cast<const uint32_t*>(flat.const_data_ptr<float>());
    for (int64_t i = 0; i < flat.numel(); ++i) {
      bits = bits * 1099511628211ULL + words[i];
    }
    sum += flat.sum().item<double>();
  }
  std::cout << "parameters: " << bits << ", " << sum << ";" << std::endl;
  raise(SIGUSR1);
}

std::string bits_in(const std::string& output) {
  const auto begin = output.find("parameters: ");
  REQUIRE(begin != std::string::npos);
  return output.substr(begin, output.find(';', begin) - begin);
}

std::atomic<int> own_calls{0};
void own_handler(int /*signal*/) {
  ++own_calls;
}

/// A record of a job's rank as ddp writes them.
json record_of(int rank, int size, int count) {
  json calls = json::array();
  for (int i = 1; i <= count; ++i) {
    calls.push_back(
        {{"number", i},
         {"group", "ddp"},
         {"backend", "gloo"},
         {"rank", rank},
         {"size", size},
         {"sequence", i},
         {"operation", "all_reduce"},
         {"arguments", "SUM"},
         {"tensors", "float32 [4]"},
         {"alike", true},
         {"bytes", 16},
         {"activity", "step"},
         {"state", i == count ? "started" : "completed"},
         {"began_ns", 1000000000LL * i},
         {"ended_ns", 0}});
  }
  return {
      {"ddp_flight_record", 1},
      {"rank", rank},
      {"size", size},
      {"host", "node"},
      {"process", 1},
      {"time_ns", 1000000000LL * 10},
      {"reason", "SIGUSR1"},
      {"collectives", calls}};
}

void write(
    const TemporaryFolder& folder,
    const std::string& name,
    const json& value) {
  ddp::test::write_text(folder / (name + ".json"), value.dump());
}

} // namespace

TEST_CASE("DDP_DEBUG is off, info or detail") {
  using ddp::debug::Level;
  const auto level = [](const char* value) {
    return ddp::debug::level([value](const char* name) {
      REQUIRE(std::string(name) == "DDP_DEBUG");
      return value ? std::optional<std::string>(value) : std::nullopt;
    });
  };
  REQUIRE(level(nullptr) == Level::kOff);
  REQUIRE(level("") == Level::kOff);
  REQUIRE(level("off") == Level::kOff);
  REQUIRE(level("info") == Level::kInfo);
  REQUIRE(level("detail") == Level::kDetail);
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
  if (!command || !ddp::test::have()) {
    return;
  }
  const TemporaryFolder folder;
  auto environment = command->environment;
  environment.insert(
      {{"DDP_BACKEND", "mpi"},
       {"DDP_DEBUG", "detail"},
       {"DDP_DEBUG_FOLDER", folder.path()}});
  auto arguments = command->arguments;
  arguments.insert(arguments.begin(), {"-n", "3"});
  ddp::test::output_of(arguments, environment);
  REQUIRE(folder.names().size() == 3);
}

TEST_CASE("detail: the stacks name the functions of both sides") {
  job(3, "gloo", "detail", [] {
    const auto group = group_with(seconds(30));
    const auto error = error_of<c10::ValueError>([&] {
      group.rank() == 2 ? ddp_test_differ(group, torch::ones({2, 3}))
                        : ddp_test_reduce(group, torch::ones({3, 2}));
    });
    const auto other = error.find("stack of rank 2:");
    REQUIRE(error.find("ddp_test_reduce+0x") < other);
    REQUIRE(error.find("ddp_test_differ+0x", other) != std::string::npos);
    REQUIRE(error.find("ddp::debug::") == std::string::npos);
  });
}

TEST_CASE("a rank that leaves a collective out is found in the records") {
  const auto skip = [] {
    const auto group = group_with(seconds(30));
    group.c10d()->getBackend(c10::kCPU)->setTimeout(seconds(3));
    const auto store = group.store();
    group.barrier();
    if (group.rank() != 1) {
      const auto error = error_of<c10::DistBackendError>(
          [&] { group.all_reduce(torch::ones({7})); });
      REQUIRE_THAT(
          error,
          ContainsSubstring("rank 1 ") && ContainsSubstring("rank_") &&
              ContainsSubstring("has not come to"));
      store->set("left/" + std::to_string(group.rank()), std::string("1"));
    }
    if (group.rank() < 2) { // rank 0 has the store
      store->wait({"left/0", "left/2"}, seconds(30));
    }
    if (group.rank() == 1) {
      raise(SIGUSR1);
      store->set("left/1", std::string("1"));
    } else if (group.rank() == 0) {
      store->wait({"left/1"}, seconds(30));
    }
  };
  for (const auto& [backend, level] :
       {std::pair<const char*, const char*>{"gloo", "detail"},
        {"gloo", "info"},
        {"shm", "info"}}) {
    if (const auto ended = job(3, backend, level, skip)) {
      const auto report = report_of(1, {ended->folder->path()});
      REQUIRE_THAT(
          report,
          ContainsSubstring(
              "  collective 3: not all ranks have come to it\n"
              "    rank 0: all_reduce(SUM) of float32 [7]: failed, ") &&
              ContainsSubstring("    rank 1: not there; its last is "
                                "collective 2, all_reduce(SUM) of float32 [1] "
                                "(barrier): completed, "));
      // Without that rank's.
      REQUIRE_THAT(
          report_of(1, {ended->path(0), ended->path(2)}),
          ContainsSubstring("  collective 3: not all ranks have come to it\n"
                            "    rank 1: no record\n"));
    }
  }
}

TEST_CASE("SIGUSR1 writes records of a training that goes on") {
  auto commands = commands_of_ranks(
      4,
      [] {
        const auto group = group_with(seconds(30));
        const std::string end = std::getenv("DDP_DEBUG_FOLDER");
        std::cout << "training" << std::endl;
        auto stop = torch::zeros({1});
        while (stop.item<float>() == 0) {
          stop.fill_(access((end + "/end").c_str(), F_OK) == 0);
          group.all_reduce(stop);
        }
        std::cout << "trained" << std::endl;
      },
      {{"DDP_DEBUG", "info"}, {"DDP_BACKEND", "shm"}});
  if (commands.empty()) {
    return;
  }
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<Process>> processes;
  for (const auto& command : commands_in(folder, std::move(commands))) {
    processes.push_back(std::make_unique<Process>(command));
  }
  for (auto& process : processes) {
    REQUIRE(process->wait_for("training", seconds(30)));
  }
  for (auto& process : processes) {
    process->signal(SIGUSR1);
  }
  const auto all = std::set<std::string>{
      "rank_0.json", "rank_1.json", "rank_2.json", "rank_3.json"};
  const auto deadline = std::chrono::steady_clock::now() + seconds(30);
  while (folder.names() != all) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  REQUIRE_THAT(
      report_of(0, {folder.path()}),
      ContainsSubstring("rank 3 of 4 on ") &&
          ContainsSubstring(" collectives: SIGUSR1\n") &&
          ContainsSubstring("  the ranks agree, up to collective "));
  ddp::test::write_text(folder / "end", "");
  for (auto& process : processes) {
    const auto outcome = process->finish(seconds(30));
    INFO(outcome.output);
    REQUIRE(outcome.exit_code == 0);
    REQUIRE_THAT(outcome.output, ContainsSubstring("trained"));
  }
}

TEST_CASE("a program's own handler of SIGUSR1 stays") {
  const auto ended = job(3, "gloo", "info", [] {
    std::signal(SIGUSR1, own_handler);
    const auto group = ddp::init_process_group();
    raise(SIGUSR1);
    REQUIRE(own_calls == 1);
  });
  if (ended) {
    REQUIRE(ended->folder->names().empty());
  }
}

TEST_CASE("ranks that crash or are stopped leave records") {
  const auto ended =
      job(3,
          "gloo",
          "info",
          [] {
            std::signal(SIGABRT, SIG_DFL); // Catch's and the watchdog's
            std::signal(SIGTERM, SIG_DFL);
            const auto group = group_with(seconds(30));
            group.barrier();
            if (group.rank() == 1) {
              std::abort();
            }
            if (group.rank() == 2) {
              raise(SIGTERM);
            }
            const auto error = error_of<c10::DistBackendError>(
                [&] { group.all_reduce(torch::ones({3})); });
          },
          {0, 128 + SIGABRT, 128 + SIGTERM});
  if (ended) {
    REQUIRE(ended->record(1).at("reason") == "Signal 6 (Aborted)");
    REQUIRE(ended->record(2).at("reason") == "SIGTERM");
    REQUIRE_THAT(
        report_of(1, {ended->folder->path()}),
        ContainsSubstring("  collective 3: not all ranks have come to it\n"
                          "    rank 0: all_reduce(SUM) of float32 [3]: "
                          "failed") &&
            ContainsSubstring("    rank 1: not there; its last is") &&
            ContainsSubstring("    rank 2: not there; its last is"));
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
      REQUIRE(!without->has_record(r));
      const auto record = with->record(r).dump();
      REQUIRE_THAT(
          record,
          ContainsSubstring("\"activity\":\"bucket 2 of 2, step 5\"") &&
              ContainsSubstring("\"group\":\"ddp/0\""));
    }
    REQUIRE_THAT(
        with->outcomes[0].output,
        ContainsSubstring("ddp: group ddp: size ") &&
            ContainsSubstring("ddp: Reducer ddp/0/reducer_0: trained "
                              "parameters 6, buckets "));
    REQUIRE_THAT(
        with->outcomes[1].output + without->all_output(),
        !ContainsSubstring("ddp: group ddp"));
    report_of(0, {with->folder->path()});
  }
}

TEST_CASE("the record has the last 1,000 collectives") {
  const auto ended = job(3, "shm", "info", [] {
    const auto group = group_with(seconds(30));
    auto value = torch::ones({2, 2}, at::kDouble);
    for (int i = 0; i < 1200; ++i) {
      value.fill_(1);
      group.all_reduce(value);
    }
    group.barrier(); // of which the records of others may know the beginning
    raise(SIGUSR1);
  });
  if (ended) {
    const auto calls = ended->record(2).at("collectives");
    REQUIRE(calls.size() == 1000);
    for (size_t i = 0; i < calls.size(); ++i) {
      REQUIRE(calls[i].at("number") == 203 + i);
      REQUIRE(calls[i].at("sequence") == 203 + i);
    }
    const auto& one = calls[500];
    REQUIRE(one.at("operation") == "all_reduce");
    REQUIRE(one.at("tensors") == "float64 [2, 2]");
    REQUIRE(one.at("bytes") == 32);
    REQUIRE(one.at("state") == "completed");
    REQUIRE(one.at("ended_ns") >= one.at("began_ns"));
    report_of(0, {ended->folder->path()});
  }
}

TEST_CASE("ddp-flightrecorder refuses what is no record") {
  const TemporaryFolder folder;
  const auto trouble = [&](const std::vector<std::string>& paths) {
    const auto output = report_of(2, paths);
    REQUIRE(output.rfind("ddp-flightrecorder: ", 0) == 0);
    return output;
  };
  REQUIRE_THAT(
      trouble({}), ContainsSubstring("(see ddp-flightrecorder --help)"));
  REQUIRE_THAT(
      trouble({folder / "none"}),
      ContainsSubstring("No such file or directory"));
  REQUIRE_THAT(
      trouble({folder.path()}), ContainsSubstring("there are no records"));
  write(folder, "rank_0", {{"rank", 0}});
  REQUIRE_THAT(
      trouble({folder.path()}), ContainsSubstring("this is no flight record"));
  write(folder, "rank_0", record_of(0, 3, 5));
  write(folder, "rank_1", record_of(1, 4, 5));
  REQUIRE_THAT(trouble({folder.path()}), ContainsSubstring("not of one job"));
}

TEST_CASE(
    "ddp-flightrecorder tells a rank that is behind from one that waits") {
  const TemporaryFolder folder;
  for (int rank = 0; rank < 4; ++rank) {
    write(folder, "rank_" + std::to_string(rank), record_of(rank, 4, 5));
  }
  REQUIRE_THAT(
      report_of(0, {folder.path()}),
      ContainsSubstring("group ddp over gloo, size 4\n"
                        "  the ranks agree, up to collective 5\n"));
  auto ahead = record_of(2, 4, 6);
  write(folder, "rank_2", ahead);
  REQUIRE_THAT(
      report_of(1, {folder.path()}),
      ContainsSubstring(
          "  collective 6: not all ranks have come to it\n"
          "    rank 0: not there; its last is collective 5, all_reduce(SUM) of "
          "float32 [4] (step): started, begun 5.0 s before the record\n") &&
          ContainsSubstring("    rank 2: all_reduce(SUM) of float32 [4] "
                            "(step): started, begun 4.0 s before the "
                            "record\n"));
  // It has just begun: the others' records may be older.
  ahead["time_ns"] = 6000000001;
  write(folder, "rank_2", ahead);
  report_of(0, {folder.path()});
  ahead["collectives"][3]["tensors"] = "float32 [8]";
  write(folder, "rank_2", ahead);
  REQUIRE_THAT(
      report_of(1, {folder.path()}),
      ContainsSubstring("  collective 4: the ranks' calls differ\n"
                        "    ranks 0-1,3: all_reduce(SUM) of float32 [4] "
                        "(step)\n"
                        "    rank 2: all_reduce(SUM) of float32 [8] (step)\n"));
}
