// PET_ variables.
#include <tests/support/catch_plain.h>

#include <common/text.h>
#include <launcher/cli/options/option_table.h>
#include <tests/launcher/launched_job.h>
#include <tests/launcher/option_parsing.h>

namespace ddp::test::environment_options_test {

TEST_CASE("options come from the environment too", "[unit]") {
  const LaunchOptions options = parse(
      {"x"},
      {{"PET_NPROC_PER_NODE", "3"},
       {"PET_NNODES", "1"},
       {"PET_NODE_RANK", "0"},
       {"PET_NO_PYTHON", "1"},
       {"PET_DRY_RUN", "0"},
       {"PET_RUN_PATH", "0"},
       {"PET_LOG_DIR", ""},
       {"PET_TEE", "0:3"},
       {"PET_NUMA_BINDING", "node"}});
  CHECK(options.nproc_per_node == 3);
  CHECK(options.kind == ProgramKind::kExecutable);
  CHECK_FALSE(options.dry_run);
  CHECK(options.output.log_dir.empty());
  CHECK(options.output.tee.of(0) == 3);
  CHECK(options.binding == Binding::kNode);
}

TEST_CASE("an option's other name has a variable too", "[unit]") {
  CHECK(parse({"x"}, {{"PET_BIND_TO", "share"}}).binding == Binding::kShare);
}

TEST_CASE("the command line wins over the environment", "[unit]") {
  const LaunchOptions options = parse(
      words("--nproc-per-node 2 --grace=1 --standalone x"),
      {{"PET_NPROC_PER_NODE", "three"},
       {"PET_GRACE", "9"},
       {"PET_STANDALONE", "0"}});
  CHECK(options.nproc_per_node == 2);
  CHECK(options.grace == std::chrono::seconds(1));
  CHECK(options.standalone);
}

// As Kubeflow sets them: the name of the pod does not resolve yet.
TEST_CASE("one node needs no address of an operator", "[unit]") {
  const Variables pod = {
      {"PET_NNODES", "1"},
      {"PET_NODE_RANK", "0"},
      {"PET_MASTER_ADDR", "job-node-0-0.job"},
      {"PET_MASTER_PORT", "29500"}};
  const LaunchOptions options = parse({"x"}, pod);
  CHECK(options.master_addr == "127.0.0.1");
  CHECK(options.master_port == 0);
  const LaunchOptions own =
      parse(words("--master-addr=host --master-port=7 x"), pod);
  CHECK(own.master_addr == "host");
  CHECK(own.master_port == 7);
}

TEST_CASE("a variable that means nothing is named", "[unit]") {
  const std::map<std::string, std::string> wrong = {
      {"PET_NPROC_PER_NODE", "three"},
      {"PET_NNODES", ""},
      {"PET_NODE_RANK", "a"},
      {"PET_STANDALONE", "yes"},
      {"PET_MODULE", ""},
      {"PET_MAX_RESTARTS", "-1"},
      {"PET_REDIRECTS", "all"},
      {"PET_OUTPUT", "loud"}};
  for (const auto& [name, value] : wrong) {
    check_refused("x", name + " is '" + value + "', expected", {{name, value}});
  }
  check_refused(
      "x", "the rendezvous endpoint is not set", {{"PET_NNODES", "3"}});
}

TEST_CASE("answers and --env have no variable", "[unit]") {
  const LaunchOptions options = parse(
      {"x"}, {{"PET_HELP", "1"}, {"PET_VERSION", "1"}, {"PET_ENV", "A=1"}});
  CHECK(options.answer.empty());
  CHECK(options.env.empty());
}

// The text of --help.

TEST_CASE("every option of the docs is in --help, once", "[unit]") {
  const std::string help = parse({"--help"}).answer;
  std::set<std::string> names;
  for (const CommandOption& option : option_table()) {
    CHECK(option.help.back() == '.');
    CHECK_FALSE(option.group.empty());
    for (const std::string& form : option.forms) {
      CAPTURE(form);
      CHECK(names.insert(form).second);
      CHECK(
          count_of(help, "\n  " + form + " ") +
              count_of(help, ", " + form + " ") +
              count_of(help, "\n  " + form + ",") +
              count_of(help, "\n  " + form + "\n") ==
          1);
    }
  }
  CHECK(names.size() > 40);
}

TEST_CASE("what an option stores has a row in the docs", "[unit]") {
  const auto& table = option_table();
  const auto stores = std::count_if(
      table.begin(), table.end(), [](const CommandOption& option) {
        return option.store != nullptr;
      });
  CHECK(static_cast<size_t>(stores) == stored_options());
}

TEST_CASE("help fits a terminal", "[unit]") {
  size_t longest = 0;
  for (const std::string& line : split_lines(parse({"--help"}).answer)) {
    longest = std::max(longest, line.size());
  }
  CHECK(longest <= 80);
  CHECK(longest > 68);
}

} // namespace ddp::test::environment_options_test
