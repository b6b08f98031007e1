// The program that a command runs.
#include <tests/support/catch_plain.h>

#include <sys/mount.h>

#include <launcher/cli/program.h>
#include <tests/launcher/option_parsing.h>
#include <tests/support/process.h>
#include <tests/support/skip.h>
#include <tests/support/temporary_folder.h>

#include <cstdlib>
#include <filesystem>

namespace ddp::test::program_test {

std::string failure_of(
    ProgramKind kind,
    const Texts& command,
    const std::map<std::string, std::string>& environment = {}) {
  return launch_error_of(
      [&] { resolve_program(kind, command, environment_of(environment)); });
}

struct Script : TemporaryFolder {
  const std::string file = *this / "train.py";
  Script() {
    write_text(file, "pass\n");
  }
};

// Any executable can replace Python.
const std::map<std::string, std::string> kPython = {{"PYTHON_EXEC", "/bin/sh"}};

TEST_CASE("Python runs scripts and modules", "[unit]") {
  const Script script;
  const auto lookup = environment_of(kPython);
  const auto arguments = [&](ProgramKind kind, const Texts& command) {
    const Program program = resolve_program(kind, command, lookup);
    CHECK(program.file == "/bin/sh");
    return program.arguments;
  };
  CHECK(
      arguments(ProgramKind::kDetect, {script.file, "-u", "1"}) ==
      Texts{"/bin/sh", "-u", script.file, "-u", "1"});
  CHECK(
      arguments(ProgramKind::kModule, {"package.train", "1"}) ==
      Texts{"/bin/sh", "-u", "-m", "package.train", "1"});
  CHECK(
      arguments(ProgramKind::kScript, {"/bin/cat"}) ==
      Texts{"/bin/sh", "-u", "/bin/cat"});
}

TEST_CASE("programs run as they are", "[unit]") {
  const auto lookup = environment_of(kPython);
  for (const ProgramKind kind :
       {ProgramKind::kDetect, ProgramKind::kExecutable}) {
    const Program program = resolve_program(kind, {"sh", "train.py"}, lookup);
    CHECK(program.file.back() == 'h');
    CHECK(program.file.find('/') != std::string::npos);
    CHECK(program.arguments == Texts{"sh", "train.py"});
  }
  const Script script; // it is not executable
  CHECK_THAT(
      failure_of(ProgramKind::kExecutable, {script.file}),
      Has("126: " + script.file));
}

TEST_CASE("what is missing is named", "[unit]") {
  CHECK(
      failure_of(ProgramKind::kDetect, {"none/train.py"}, kPython) ==
      "127: none/train.py: no such Python script");
  CHECK(
      failure_of(ProgramKind::kScript, {"none/train"}, kPython) ==
      "127: none/train: no such Python script");
  CHECK_THAT(
      failure_of(
          ProgramKind::kModule, {"train"}, {{"PYTHON_EXEC", "/none/python3"}}),
      Has("127: /none/python3: no such program (PYTHON_EXEC "));
  CHECK_THAT(
      failure_of(ProgramKind::kDetect, {"/none/train"}, kPython),
      Has("127: /none/train: no such program"));
  CHECK_THAT(
      failure_of(ProgramKind::kDetect, {"3", "train"}, kPython),
      Has("127: '3': no such program in PATH; --nproc-per-node sets"));
}

TEST_CASE("a program on a noexec file system needs no chmod", "[unit]") {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  if (mount("tmpfs", path.c_str(), "tmpfs", MS_NOEXEC, "size=64k") != 0) {
    skip("no tmpfs may be mounted here");
  }
  const std::string file = folder / "train";
  write_text(file, "#!/bin/sh\n");
  std::filesystem::permissions(file, std::filesystem::perms::all);
  const auto failure = failure_of(ProgramKind::kExecutable, {file});
  umount(path.c_str());
  CHECK_THAT(
      failure, Has("126: " + file, "denied; its file system is mounted"));
}

TEST_CASE("a program in a closed folder needs no chmod", "[unit]") {
  const Script script;
  using std::filesystem::perms;
  std::filesystem::permissions(script.path(), perms::none);
  Process user([&] {
    if (!becomes_user(std::filesystem::path(script.path()).parent_path())) {
      return kSkippedCode;
    }
    const auto failure = failure_of(ProgramKind::kExecutable, {script.file});
    std::cout << failure << std::endl;
    return 0;
  });
  const auto outcome = user.finish(kLong);
  std::filesystem::permissions(script.path(), perms::owner_all);
  if (outcome.exit_code == kSkippedCode) {
    skip("no other user can be taken here");
  }
  CHECK(outcome.exit_code == 0);
  CHECK_THAT(
      outcome.output,
      Has("126: " + script.file, "denied; one of its folders cannot be"));
}

TEST_CASE("an empty last entry of PATH is the current folder", "[unit]") {
  const Script script;
  std::filesystem::permissions(
      script.file,
      std::filesystem::perms::owner_exec,
      std::filesystem::perm_options::add);
  const auto folder = std::filesystem::current_path();
  const std::string search_path = std::getenv("PATH");
  std::filesystem::current_path(script.path());
  setenv("PATH", "/usr/bin:", 1);
  CHECK(find_program("train.py") == "./train.py");
  setenv("PATH", search_path.c_str(), 1);
  std::filesystem::current_path(folder);
}

TEST_CASE("arguments can name the local rank", "[unit]") {
  const auto second = [](const std::string& text) {
    return arguments_for({"${local_rank}", text}, 12).at(1);
  };
  CHECK(arguments_for({"${local_rank}"}, 1) == Texts{"${local_rank}"});
  CHECK(second("--log=${local_rank}.log") == "--log=12.log");
  CHECK(second("${local_rank}/${local_rank}") == "12/12");
  CHECK(
      second("$local_ranks ${rank} $HOME $") == "$local_ranks ${rank} $HOME $");
  CHECK(second("kill $$ $local_rank") == "kill $$ $local_rank");
  CHECK(second("") == "");
}

} // namespace ddp::test::program_test
