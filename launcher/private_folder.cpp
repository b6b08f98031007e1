#include <launcher/private_folder.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <common/scheduler/launch_error.h>

namespace ddp {

std::string temporary_folder() {
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder == '/' ? folder : "/tmp";
}

std::string make_private_folder() {
  std::string name = temporary_folder() + "/ddprun-XXXXXX";
  return mkdtemp(name.data()) != nullptr ? name : "";
}

std::string attempt_folder(const std::string& folder, int attempt) {
  return folder.empty() ? "" : folder + "/attempt_" + std::to_string(attempt);
}

void remove_private_folder(const std::string& folder) {
  if (!folder.empty()) {
    std::error_code already_gone;
    std::filesystem::remove_all(folder, already_gone);
  }
}

std::string make_log_folder(
    const std::string& source,
    const std::string& parent,
    const std::string& run_id) {
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  std::string safe = run_id.substr(0, 100);
  std::replace(safe.begin(), safe.end(), '/', '_');
  std::string name = std::filesystem::absolute(parent, error).string() + "/" +
      safe + "_XXXXXX";
  if (mkdtemp(name.data()) == nullptr) {
    throw LaunchError(
        kExitUsage, source + " " + parent + ": " + std::strerror(errno));
  }
  return name;
}

} // namespace ddp
