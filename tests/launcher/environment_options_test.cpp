// PET_ variables.
#include <tests/support/catch_plain.h>

#include <tests/launcher/option_parsing.h>

namespace ddp::test::environment_options_test {

TEST_CASE("options come from the environment too", "[unit]") {
  const LaunchOptions options = parse(
      {"x"},
      {{"PET_NPROC_PER_NODE", "3"},
       {"PET_NNODES", "1"},
       {"PET_NODE_RANK", "0"},
       {"PET_MASTER_ADDR", "host"},
       {"PET_MASTER_PORT", "29500"},
       {"PET_NO_PYTHON", "1"},
       {"PET_DRY_RUN", "0"},
       {"PET_RUN_PATH", "0"},
       {"PET_LOG_DIR", ""},
       {"PET_TEE", "0:3"},
       {"PET_NUMA_BINDING", "node"}});
  CHECK(options.nproc_per_node == 3);
  CHECK(options.master_addr == "host");
  CHECK(options.master_port == 29500);
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
  check_refused("x", "where nodes meet is not known", {{"PET_NNODES", "3"}});
}

TEST_CASE("answers and --env have no variable", "[unit]") {
  const LaunchOptions options = parse(
      {"x"}, {{"PET_HELP", "1"}, {"PET_VERSION", "1"}, {"PET_ENV", "A=1"}});
  CHECK(options.answer.empty());
  CHECK(options.env.empty());
}

} // namespace ddp::test::environment_options_test
