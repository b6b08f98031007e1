#include <launcher/cli/program_path.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include <sys/stat.h>
#include <unistd.h>

#include <common/scheduler/launch_error.h>

namespace ddp {
namespace {

// 0, or why the file cannot be executed.
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

[[noreturn]] void refuse(const std::string& name, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    throw LaunchError(kExitNotFound, name + ": no such program");
  }
  std::string hint;
  if (error == EACCES) {
    hint = "; try chmod +x " + name;
  }
  throw LaunchError(
      kExitNotExecutable,
      name + ": cannot be executed: " + std::strerror(error) + hint);
}

} // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (const int error = execution_error(name)) {
      refuse(name, error);
    }
    return name;
  }
  const char* search_path = std::getenv("PATH");
  std::istringstream folders(search_path ? search_path : "/bin:/usr/bin");
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
    refuse(not_executable, EACCES);
  }
  const bool is_here = !name.empty() && execution_error("./" + name) == 0;
  const bool is_count =
      name.find_first_not_of("0123456789") == std::string::npos;
  throw LaunchError(
      kExitNotFound,
      "'" + name + "': no such program in PATH" +
          (is_here        ? "; did you mean ./" + name + "?"
               : is_count ? "; --nproc-per-node says how many ranks"
                          : ""));
}

} // namespace ddp
