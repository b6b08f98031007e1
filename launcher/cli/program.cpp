#include <launcher/cli/program.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <common/scheduler/launch_error.h>
#include <common/text.h>

namespace ddp {
namespace {

// 0, or the errno for which the file cannot be executed.
int execution_error(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    return errno;
  }
  if (!S_ISREG(status.st_mode)) {
    return S_ISDIR(status.st_mode) ? EISDIR : EACCES;
  }
  return access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

std::string remedy(const std::string& name) {
  struct statvfs file_system {};
  if (statvfs(name.c_str(), &file_system) != 0) {
    return "; one of its folders cannot be searched";
  }
  return (file_system.f_flag & ST_NOEXEC) != 0
      ? "; its file system is mounted noexec"
      : "; try chmod +x " + name;
}

[[noreturn]] void reject(const std::string& name, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    throw LaunchError(kExitNotFound, name + ": no such program");
  }
  throw LaunchError(
      kExitNotExecutable,
      name + ": cannot be executed: " + std::strerror(error) +
          (error == EACCES ? remedy(name) : ""));
}

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
            " (PYTHON_EXEC sets the Python that runs scripts and modules)");
  }
}

Program python_program(
    std::vector<std::string> own_arguments,
    const std::vector<std::string>& command,
    const EnvironmentLookup& lookup) {
  const std::string set = lookup("PYTHON_EXEC").value_or("");
  const std::string python = set.empty() ? "python3" : set;
  Program program{find_python(python), std::move(own_arguments)};
  auto& arguments = program.arguments;
  arguments.insert(arguments.begin(), python);
  arguments.insert(arguments.end(), command.begin(), command.end());
  return program;
}

} // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (const int error = execution_error(name)) {
      reject(name, error);
    }
    return name;
  }
  const char* search_path = std::getenv("PATH");
  // The separator at the end keeps an empty last entry, the current folder.
  std::istringstream folders(
      std::string(search_path ? search_path : "/bin:/usr/bin") + ":");
  std::string not_executable;
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string path = (folder.empty() ? "." : folder) + "/" + name;
    const int error = execution_error(path);
    if (error == 0) {
      return path;
    }
    if (error == EACCES && not_executable.empty()) {
      not_executable = path;
    }
  }
  if (!not_executable.empty()) {
    reject(not_executable, EACCES);
  }
  const bool is_here = !name.empty() && execution_error("./" + name) == 0;
  const bool is_count =
      name.find_first_not_of("0123456789") == std::string::npos;
  throw LaunchError(
      kExitNotFound,
      "'" + name + "': no such program in PATH" +
          (is_here        ? "; did you mean ./" + name + "?"
               : is_count ? "; --nproc-per-node sets the number of ranks"
                          : ""));
}

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
    result[i] =
        replaced(result[i], "${local_rank}", std::to_string(local_rank));
  }
  return result;
}

} // namespace ddp
