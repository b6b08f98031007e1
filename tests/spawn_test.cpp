// ddp::spawn without failures, with tests/programs/spawned.cpp and
// examples/spawn.cpp.
#include <tests/support/mpirun.h>

#include <ddp/spawn/program_copy.h>

namespace ddp::test::spawn_test {

using Texts = std::vector<std::string>;

/// Runs a command that must succeed, without a launcher's environment.
std::string output_of(const Texts& command, Environment environment = {}) {
  environment.insert({{"DDP_DEVICE", "cpu"}, {"RANK", ""}, {"WORLD_SIZE", ""}});
  return output_of(run(Command{command, environment}, kLong));
}

Texts spawned(Texts arguments) {
  arguments.insert(arguments.begin(), program("spawned"));
  return arguments;
}

void check_sums(const std::string& output, int size) {
  INFO(output);
  const auto n = std::to_string(size);
  const auto sum = std::to_string(size * (size + 1) / 2);
  for (int rank = 0; rank < size; ++rank) {
    const auto place = std::to_string(rank) + " of " + n;
    const auto line = "rank " + place + ", local " + place + ", sum " + sum;
    CHECK_THAT(output, Has(line));
  }
  const std::string end = "\nafter\n";
  CHECK(output.find(end) == output.size() - end.size());
}

TEST_CASE("a spawned program's workers form a group") {
  for (const int size : {1, 4}) {
    check_sums(output_of(spawned({std::to_string(size), "sum"})), size);
  }
}

TEST_CASE("a program with threads can spawn") {
  check_sums(output_of(spawned({"2", "threads"})), 2);
}

TEST_CASE("a program whose locale groups digits can spawn") {
  check_sums(output_of(spawned({"2", "locale"})), 2);
}

TEST_CASE("workers get the program's arguments, whatever they are") {
  const auto path = program("spawned");
  const auto expected =
      "rank 0: <" + path + "> <1> <arguments> <a  b> <> <-x=\"'> <>\n";
  CHECK_THAT(
      output_of(spawned({"1", "arguments", "a  b", "", "-x=\"'", ""})),
      Has(expected));
  CHECK_THAT(
      output_of({"bash", "-c", "exec -a '' \"$0\" 1 arguments", path}),
      Has("rank 0: <> <1> <arguments>\n"));
}

TEST_CASE("workers get arguments that something has taken out of argv") {
  CHECK_THAT(
      output_of(spawned({"1", "taken", "--steps", "3"})),
      Has("<1> <taken> <--steps> <3>\n"));
}

TEST_CASE("arguments of main are argv's, in its order, unless some are gone") {
  using detail::program_arguments;
  const auto original = program_arguments(0, nullptr);
  REQUIRE(original.size() >= 2); // CTest names a tag
  std::vector<char*> argv;
  for (auto each = original.rbegin(); each != original.rend(); ++each) {
    argv.push_back(const_cast<char*>(each->c_str()));
  }
  const auto size = static_cast<int>(argv.size());
  CHECK(
      program_arguments(size, argv.data()) ==
      Texts(original.rbegin(), original.rend()));
  CHECK(program_arguments(size - 1, argv.data()) == original);
  std::string own = "--own";
  argv[0] = own.data();
  CHECK(program_arguments(1, argv.data()) == Texts{own});
}

FOLDER_TEST("workers start where the program was started") {
  std::filesystem::create_symlink(program("spawned"), folder / "program");
  CHECK_THAT(
      output_of(
          {"bash", "-c", "cd " + folder.path() + "; ./program 1 folder x"}),
      Has("rank 0: <./program> <1> <folder> <x> <" + folder.path() + ">\n"));
}

FOLDER_TEST("a program whose file is gone can spawn, and one run by ld.so") {
  for (const auto* gone : {"replaced", "removed"}) {
    std::filesystem::copy(program("spawned"), folder / "copy");
    check_sums(output_of({folder / "copy", "1", gone}), 1);
    std::filesystem::remove(folder / "copy");
  }
  CHECK(folder.names().empty());
  const std::string loader = "/lib64/ld-linux-x86-64.so.2";
  if (std::filesystem::exists(loader)) {
    check_sums(output_of({loader, program("spawned"), "1", "sum"}), 1);
  }
}

TEST_CASE("workers are executed at the program's path, as Valgrind needs") {
  CHECK(
      detail::program_path() ==
      std::filesystem::read_symlink("/proc/self/exe").string());
}

TEST_CASE("a program without standard streams can spawn") {
  output_of(
      {"bash",
       "-c",
       "exec \"$0\" 2 streamless <&- >&- 2>&-",
       program("spawned")});
}

TEST_CASE("workers inherit no input and no descriptors") {
  const auto output = output_of(
      {"bash",
       "-c",
       "exec 9< /dev/zero; echo text | \"$0\" 1 descriptors",
       program("spawned")});
  CHECK_THAT(output, Has("rank 0: input is /dev/null, 9 is closed\n"));
}

TEST_CASE("a worker's environment is its own") {
  const auto output = output_of(
      spawned({"2", "environment"}),
      {{"OMP_NUM_THREADS", ""},
       {"TORCHELASTIC_RESTART_COUNT", "5"},
       {"TORCHELASTIC_ERROR_FILE", "/nowhere/at/all"},
       {"MASTER_ADDR", "192.0.2.1"},
       {"SLURM_PROCID", "0"},
       {"OMPI_COMM_WORLD_RANK", "0"},
       {"OMPI_COMM_WORLD_SIZE", "1"}});
  for (const auto* line :
       {"1: RANK=1\n",
        "1: LOCAL_RANK=1\n",
        "1: WORLD_SIZE=2\n",
        "1: LOCAL_WORLD_SIZE=2\n",
        "1: MASTER_ADDR=127.0.0.1\n",
        "1: OMP_NUM_THREADS=",
        "1: TORCHELASTIC_RESTART_COUNT=0\n",
        "1: TORCHELASTIC_ERROR_FILE is unset\n",
        "1: OMPI_COMM_WORLD_RANK is unset\n",
        "1: DDP_SPAWN is unset\n"}) {
    CHECK_THAT(output, Has(line));
  }
}

TEST_CASE("of several calls of spawn each has workers of its own") {
  const auto output = output_of(spawned({"2", "twice"}));
  INFO(output);
  const auto count = [&](const std::string& text) {
    const std::regex form(text);
    return std::distance(
        std::sregex_iterator(output.begin(), output.end(), form), {});
  };
  CHECK(count("first") == 2);
  CHECK(count("second") == 3);
  CHECK(count("of 2, sum 3\n") == 2);
  CHECK(count("of 3, sum 6\n") == 3);
  CHECK(count("after\n") == 1);
  CHECK(count("descriptors left: 0\n") == 1);
}

TEST_CASE("a program that a worker starts can spawn") {
  const auto output = output_of(spawned({"1", "other"}));
  CHECK_THAT(output, Has("0: WORLD_SIZE=1\n"));
  CHECK_THAT(output, Has("other: 0\n"));
}

TEST_CASE("a program that a launcher has started once can spawn") {
  check_sums(
      output_of(
          {variable("DDPRUN"),
           "--output",
           "raw",
           program("spawned"),
           "1",
           "sum"}),
      1);
}

TEST_CASE("spawn in a rank of mpirun's starts a job of its own") {
  need_mpirun();
  check_sums(
      ddp::test::output_of({"-n", "1", program("spawned"), "1", "sum"}), 1);
}

TEST_CASE("the example trains in as many processes as it is told") {
  const auto path = variable("DDP_EXAMPLES") + "/spawn";
  double alone = 0;
  for (const int size : {1, 3}) {
    const auto output =
        output_of({path, "--processes", std::to_string(size), "--steps", "40"});
    INFO(output);
    std::smatch match;
    const std::regex form(
        "loss (\\S+)\nrank 0: parameters (\\d+)\n(.*\n)*" +
        std::to_string(size) + " processes have ended\n");
    REQUIRE(std::regex_search(output, match, form));
    const auto loss = std::stod(match[1]);
    alone = size == 1 ? loss : alone;
    CHECK(std::abs(loss - alone) <= 1e-4 * alone);
    for (int rank = 1; rank < size; ++rank) {
      CHECK_THAT(
          output,
          Has("rank " + std::to_string(rank) + ": parameters " +
              match[2].str()));
    }
  }
}

} // namespace ddp::test::spawn_test
