// Python continues a training of C++, and vice versa.
#include <tests/support/launched.h>
#include <tests/support/ranks.h>

namespace ddp::test::cross_language_test {

constexpr auto kLong = std::chrono::seconds(180);
constexpr int kWorld = 3;

void run_cpp(const std::string& folder, const std::string& phase) {
  output_of(
      with_ddprun(kWorld, {program("language_trainer"), folder, phase}), kLong);
}

/// Returns what rank 0 printed.
std::string run_python(
    const std::string& folder,
    const std::string& phase,
    int world = kWorld) {
  const auto script = parity_program("language_trainer.py");
  std::vector<Command> commands;
  for (const auto& environment : environments_of_ranks(world)) {
    commands.push_back(
        {{variable("DDP_PYTHON"), script, folder, phase}, environment});
  }
  const auto outcomes = run(commands, kLong);
  for (const auto& outcome : outcomes) {
    output_of(outcome);
  }
  return outcomes[0].output;
}

/// The results of the last phase, by optimizer and by the two ways.
std::map<std::string, std::string> parse(const std::string& output) {
  std::map<std::string, std::string> found;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(": ");
    if (colon != std::string::npos) {
      found[line.substr(0, colon)] = line.substr(colon + 2);
    }
  }
  return found;
}

TEST_CASE("a training changes its language and back") {
  python_with_torch();
  const TemporaryFolder folder;
  run_python(folder.path(), "0", 1);
  run_cpp(folder.path(), "1");
  run_python(folder.path(), "2");
  run_cpp(folder.path(), "3");
  const auto output = run_python(folder.path(), "4");
  INFO(output);
  const auto found = parse(output);
  for (const std::string name :
       {"sgd",
        "step-lr",
        "adam",
        "adamw",
        "rmsprop",
        "adagrad",
        "libtorch-adam"}) {
    // A detour through the other language changes nothing.
    CHECK(found.at(name + " cpp-all cpp-py-cpp") == "equal");
    CHECK(found.at(name + " py-all py-cpp-py") == "equal");
    // One half in each. LibTorch's own Adam is not Python's, ddp's is. LibTorch
    // changes the learning rate one step after Python.
    const bool same_arithmetic = name != "libtorch-adam";
    for (const std::string ways :
         {" cpp-all py-all", " cpp-all cpp-py", " py-all py-cpp"}) {
      const auto difference = found.at(name + ways);
      INFO(name << ways << ": " << difference);
      if (name == "step-lr" && ways == " cpp-all py-all") {
        CHECK(difference != "equal");
      } else if (same_arithmetic) {
        CHECK(difference == "equal");
      } else {
        CHECK(std::stod(difference) < 1e-5);
      }
    }
  }
}

} // namespace ddp::test::cross_language_test
