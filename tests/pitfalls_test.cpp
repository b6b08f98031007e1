// docs/pitfalls.md: each message on the page is provoked, and compared.

#include <ddp/ddp.h>
#include <ddp/environment/environment.h>
#include <ddp/init/device_choice.h>
#include <tests/support/examples.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

namespace ddp::test::pitfalls_test {

namespace nn = torch::nn;

/// The text with single spaces, since the page breaks lines.
std::string one_line(const std::string& text) {
  std::istringstream words(text);
  std::string result;
  for (std::string word; words >> word;) {
    result += (result.empty() ? "" : " ") + word;
  }
  return result;
}

/// Compares a message with the page's, in which "..." stands for anything.
void check_message(const std::string& title, const std::string& message) {
  std::ifstream file(variable("DDP_SOURCE") + "/docs/pitfalls.md");
  std::stringstream page;
  page << file.rdbuf();
  CAPTURE(title);
  const auto texts =
      matches(page.str(), "```text title=" + title + "\n((?:.|\n)*?)\n```");
  REQUIRE(texts.size() == 1);
  const auto expected = one_line(texts[0][0]);
  const auto seen = one_line(message);
  CAPTURE(seen, expected);
  const std::regex special(R"([.^$|()\[\]{}*+?\\])");
  const auto pattern = std::regex_replace(
      std::regex_replace(expected, special, R"(\$&)"),
      std::regex(R"((\\\.){3})"),
      ".*");
  REQUIRE(std::regex_match(seen, std::regex(pattern)));
}

/// The text of the error that `action` throws.
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// The one warning that `action` causes.
std::string warning_of(const std::function<void()>& action) {
  const auto texts = warnings_of(action);
  REQUIRE(texts.size() == 1);
  return texts.front();
}

struct CellsInVector : LayeredNet {
  nn::Linear stem = linear("stem", 4, 8);
  std::vector<nn::Linear> cells{nn::Linear(8, 8)};

  torch::Tensor forward(const torch::Tensor& x) {
    return cells[0](torch::relu(stem(x)));
  }
};

/// Holds layers that it does not register.
struct NothingRegistered : nn::Module {
  std::vector<nn::Linear> cells{nn::Linear(4, 4)};
};

struct Bound : nn::Cloneable<Bound> {
  nn::Linear stem{nullptr}, branch{nullptr};
  std::function<torch::Tensor(const torch::Tensor&)> chosen;

  Bound() {
    Bound::reset();
    chosen = [this](const torch::Tensor& x) { return branch(x); };
  }
  void reset() override {
    stem = register_module("stem", nn::Linear(4, 8));
    branch = register_module("branch", nn::Linear(8, 2));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return chosen(torch::relu(stem(x)));
  }
};

torch::Tensor input() {
  return torch::randn({5, 4});
}

RANKS_TEST("pitfall: modules in a plain list") {
  const auto step = [](auto& net) { // a second forward uses the same leaves
    net->forward(input()).sum().backward();
    net->forward(input()).sum().backward();
  };
  auto attached = std::make_shared<CellsInVector>();
  const Reducer reducer(attached, group);
  check_message("plain-vector", warning_of([&] { step(attached); }));
  DistributedDataParallel<CellsInVector> wrapped(
      std::make_shared<CellsInVector>(), group);
  check_message("plain-vector", warning_of([&] { step(wrapped); }));
  check_message("nothing-registered", error_of([&] {
                  (void)Reducer(std::make_shared<NothingRegistered>(), group);
                }));
}

RANKS_TEST("pitfall: a function that means another instance") {
  const auto original = std::make_shared<Bound>();
  auto clone = std::dynamic_pointer_cast<Bound>(original->clone());
  const Reducer reducer(clone, group);
  clone->forward(input()).sum().backward();
  check_message("captured-this", warning_of([&] {
                  clone->forward(input()).sum().backward();
                }));
}

RANKS_TEST("pitfall: replicas that start different") {
  torch::manual_seed(group.rank()); // as in a program that sets no seed
  nn::Linear net(4, 2);
  const Reducer reducer(net, group);
  verify_same_parameters(*net, group);
  check_message("other-model", error_of([&] {
                  const int64_t width = group.rank() == 1 ? 16 : 8;
                  (void)Reducer(nn::Linear(4, width), group);
                }));
}

RANKS_TEST("pitfall: replicas that drift apart") {
  nn::Linear net(4, 2);
  const Reducer reducer(net, group, ReducerOptions().check_divergence_every(1));
  net->forward(input()).sum().backward();
  if (group.rank() == 2) {
    const torch::NoGradGuard no_grad;
    net->bias += 1;
  }
  check_message(
      "drifted", error_of([&] { net->forward(input()).sum().backward(); }));
}

RANKS_TEST("pitfall: a batch that the ranks do not divide") {
  check_message("batch-plan", error_of([&] {
                  plan_batches(BatchPlanOptions().global_batch(256), group);
                }));
  // Each rank gets an index even if there are fewer samples than ranks.
  DistributedSampler sampler(2, group);
  sampler.reset();
  REQUIRE(sampler.next(1).has_value());
}

FOLDER_TEST("pitfall: a file that several processes wrote") {
  const auto path = folder / "net.pt";
  nn::Linear net(64, 64);
  torch::save(net, path);
  { // another process overwrites a part
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(2000);
    file << std::string(5000, 'x');
  }
  check_message("damaged-file", error_of([&] { load_checkpoint(path, *net); }));
  // A file of ddp with one changed byte.
  const auto own = folder / "net.safetensors";
  save_checkpoint(own, *net);
  {
    std::fstream file(own, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4000);
    file << 'x';
  }
  check_message(
      "damaged-tensor", error_of([&] { load_checkpoint(own, *net); }));
}

FOLDER_TEST("pitfall: two jobs in one folder of checkpoints") {
  nn::Linear net(4, 2);
  TrainingState state;
  state.add("net", net);
  CheckpointManager one(folder.path(), state, ProcessGroup());
  one.save(1);
  CheckpointManager other(folder.path(), state, ProcessGroup());
  other.load();
  check_message("two-jobs", error_of([&] { other.save(2); }));
}

RANKS_TEST("pitfall: names with and without module.") {
  const auto path = folder + "net.pt";
  DistributedDataParallel<nn::Linear> wrapped(nn::Linear(4, 2), group);
  REQUIRE(wrapped->named_parameters().contains("module.weight"));
  save_checkpoint(path, *wrapped, group);
  nn::Linear plain(4, 2);
  load_checkpoint(path, *plain, group);
  REQUIRE(plain->weight.equal(wrapped->module()->weight));
  load_checkpoint(path, *wrapped, group);
  check_message("other-names", error_of([&] {
                  nn::Sequential other(nn::Linear(4, 2), nn::Linear(2, 2));
                  load_checkpoint(path, *other, group);
                }));
}

TEST_CASE("pitfall: fewer GPUs than ranks") {
  const RankInfo one_gpu{"host", {"01"}, ""};
  const auto choose = [&](const ProcessGroupOptions& options) {
    return choose_device(
        complete_options(options, [](const char*) { return std::nullopt; }),
        {one_gpu, one_gpu},
        0);
  };
  check_message("few-gpus", choose({}).note);
  check_message("one-gpu", error_of([&] {
                  const at::Device gpu("cuda:0");
                  choose(ProcessGroupOptions().device(gpu));
                }));
}

RANKS_TEST("pitfall: an argument on another device") {
  const auto elsewhere = torch::ones({2, 4}, torch::kMeta);
  nn::Linear net(4, 2);
  DistributedDataParallel<nn::Linear> model(
      net, group, ReducerOptions().move_inputs(false));
  check_message(
      "argument-elsewhere", error_of([&] { model->forward(elsewhere); }));
}

RANKS_TEST("pitfall: an input of parallel_forward on another device") {
  check_message("input-elsewhere", error_of([&] {
                  parallel_forward(
                      nn::Linear(4, 2),
                      torch::ones({3, 4}, torch::kMeta),
                      group,
                      ParallelForwardOptions().move_input(false));
                }));
}

TEST_CASE("pitfall: a program that starts itself") {
  const auto spawned = [](const std::vector<std::string>& arguments) {
    Command command{{program("spawned")}, {{"RANK", ""}, {"WORLD_SIZE", ""}}};
    command.arguments.insert(
        command.arguments.end(), arguments.begin(), arguments.end());
    const auto output = run(command, kLong).output;
    const auto begin = output.find("error: ");
    REQUIRE(begin != std::string::npos);
    return output.substr(begin);
  };
  check_message("spawn-in-worker", spawned({"1", "recursion"}));
  check_message("spawn-not-reached", spawned({"2", "early", "1"}));
}

TEST_CASE("pitfall: variables that are half set") {
  const auto train = [](const Environment& variables) {
    auto environment = variables;
    environment.emplace("OMP_NUM_THREADS", "1");
    const auto outcome =
        run(Command{{program("group_member")}, environment}, kLong);
    REQUIRE(outcome.exit_code != 0);
    const std::string type = "error: c10::ValueError: ";
    const auto begin = outcome.output.find(type);
    REQUIRE(begin != std::string::npos);
    return "error: " + outcome.output.substr(begin + type.size());
  };
  check_message("half-set", train({{"RANK", "0"}, {"WORLD_SIZE", ""}}));
}

} // namespace ddp::test::pitfalls_test
