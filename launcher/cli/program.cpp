#include <launcher/cli/program.h>

#include <unistd.h>

#include <common/scheduler/launch_error.h>
#include <launcher/cli/program_path.h>

namespace ddp {
namespace {

bool is_python_script(ProgramKind kind, const std::string& name) {
  const std::string ending = ".py";
  return kind == ProgramKind::kScript ||
      (kind == ProgramKind::kDetect && name.size() > ending.size() &&
       name.compare(name.size() - ending.size(), ending.size(), ending) == 0);
}

std::string find_python(const std::string& python) {
  try {
    return find_program(python);
  } catch (const LaunchError& error) {
    throw LaunchError(
        error.exit_code(),
        std::string(error.what()) +
            " (PYTHON_EXEC names the Python that runs scripts and modules)");
  }
}

Program python_program(
    const std::vector<std::string>& own_arguments,
    const std::vector<std::string>& command,
    const EnvironmentLookup& lookup) {
  std::string python = lookup("PYTHON_EXEC").value_or("");
  if (python.empty()) {
    python = "python3";
  }
  Program program;
  program.file = find_python(python);
  program.arguments.push_back(python);
  for (const auto* part : {&own_arguments, &command}) {
    program.arguments.insert(
        program.arguments.end(), part->begin(), part->end());
  }
  return program;
}

std::string replaced(std::string text, const std::string& local_rank) {
  const std::string mention = "${local_rank}";
  for (size_t at = 0; (at = text.find(mention, at)) != std::string::npos;) {
    text.replace(at, mention.size(), local_rank);
    at += local_rank.size();
  }
  return text;
}

} // namespace

Program resolve_program(
    ProgramKind kind,
    const std::vector<std::string>& command,
    const EnvironmentLookup& lookup) {
  if (kind == ProgramKind::kModule) {
    return python_program({"-u", "-m"}, command, lookup);
  }
  const std::string& name = command.front();
  if (!is_python_script(kind, name)) {
    return {find_program(name), command};
  }
  if (access(name.c_str(), F_OK) != 0) {
    throw LaunchError(kExitNotFound, name + ": no such Python script");
  }
  return python_program({"-u"}, command, lookup);
}

std::vector<std::string> arguments_for(
    const std::vector<std::string>& arguments,
    int local_rank) {
  std::vector<std::string> result = arguments;
  for (size_t i = 1; i < result.size(); ++i) {
    result[i] = replaced(result[i], std::to_string(local_rank));
  }
  return result;
}

} // namespace ddp
