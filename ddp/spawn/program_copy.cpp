#include <ddp/spawn/program_copy.h>

#include <common/file_descriptor.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace ddp::detail {
namespace {

using Texts = std::vector<std::string>;

/// Read before `main`, which may change the folder.
// NOLINTNEXTLINE(cert-err58-cpp): it does not throw
const std::string folder_at_start = [] {
  std::error_code error;
  return std::filesystem::current_path(error).string();
}();

/// The arguments that the kernel passed, as they are in memory now.
Texts kernel_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  Texts result;
  for (std::string text; std::getline(file, text, '\0');) {
    result.push_back(text);
  }
  return result;
}

} // namespace

Texts program_arguments(int argc, char** argv) {
  Texts given(argv, argv + std::max(argc, 0));
  auto original = kernel_arguments();
  auto left = original;
  for (const auto& argument : given) {
    const auto found = std::find(left.begin(), left.end(), argument);
    if (found == left.end()) {
      return given; // not from the kernel
    }
    left.erase(found);
  }
  return left.empty() ? given : original;
}

std::string program_path() {
  const char* link = "/proc/self/exe";
  std::error_code error;
  auto path = std::filesystem::read_symlink(link, error).string();
  const FileDescriptor program(open(link, O_PATH | O_CLOEXEC));
  struct stat there {};
  struct stat own {};
  const bool is_there = stat(path.c_str(), &there) == 0 &&
      fstat(program.get(), &own) == 0 && there.st_ino == own.st_ino &&
      there.st_dev == own.st_dev;
  // Valgrind emulates these calls, but would execute itself at the link.
  return is_there ? path : link;
}

const std::string& start_folder() {
  return folder_at_start;
}

} // namespace ddp::detail
