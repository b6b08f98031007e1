#include <bench/launchers.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using Texts = std::vector<std::string>;

constexpr int kTorchrunRounds = 3;

// A program's file, or nothing.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return access(name.c_str(), X_OK) == 0 ? name : "";
  }
  const char* path = std::getenv("PATH");
  std::string folder;
  for (std::istringstream list(path == nullptr ? "" : path);
       std::getline(list, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (access(file.c_str(), X_OK) == 0) {
      return file;
    }
  }
  return "";
}

// torchrun's own default is the same for all, and may be in use.
std::string free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound =
      bind(fd, generic, size) == 0 && getsockname(fd, generic, &size) == 0;
  close(fd);
  if (!bound) {
    throw std::runtime_error("no port on loopback is free");
  }
  return std::to_string(ntohs(address.sin_port));
}

} // namespace

std::vector<Launcher> find_launchers(int rounds, const std::string& folder) {
  std::vector<Launcher> launchers;
  launchers.push_back({"fork+exec", rounds, nullptr});
  launchers.push_back({"ddprun", rounds, [](int ranks) {
                         return Texts{
                             DDPRUN_PATH,
                             "--nproc-per-node",
                             std::to_string(ranks),
                             WORKER_PATH};
                       }});
  const std::string mpirun = find_program("mpirun");
  if (mpirun.empty()) {
    std::printf("mpirun: skipped, it is not on PATH\n");
  } else {
    launchers.push_back(
        {"mpirun", rounds, [mpirun](int ranks) {
           return Texts{mpirun, "-n", std::to_string(ranks), WORKER_PATH};
         }});
  }
  const char* const python = std::getenv("DDP_PYTHON");
  const std::string torchrun =
      find_program(std::filesystem::path(python == nullptr ? "" : python)
                       .replace_filename("torchrun"));
  if (python == nullptr || torchrun.empty()) {
    std::printf("torchrun: skipped, there is none beside $DDP_PYTHON\n");
  } else {
    launchers.push_back(
        {"torchrun",
         std::min(rounds, kTorchrunRounds),
         [torchrun, folder](int ranks) {
           return Texts{
               torchrun,
               "--no-python",
               "--log-dir",
               folder,
               "--master-port",
               free_port(),
               "--nproc-per-node",
               std::to_string(ranks),
               WORKER_PATH};
         }});
  }
  return launchers;
}
