// Joins the group that its launcher describes, prints it, and behaves as its
// arguments say:
//   late  rank 0 joins after a second
//   leaves  exits by _exit
//   lingers RANK  that rank exits a second after the others
//   early  rank 1 fails before it joins
//   fails  rank 1 fails afterwards
//   exits  rank 1 exits with code 3 afterwards
//   forks  forks a child, which exits

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

std::string launcher_rank() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank ? rank : "";
}

bool is_own(const std::string& inode) {
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    if (target == "socket:[" + inode + "]") {
      return true;
    }
  }
  return false;
}

/// Number of this process's sockets that listen on all interfaces.
int open_sockets() {
  int count = 0;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    std::string number, local, remote, state, skip, inode;
    while (file >> number >> local >> remote >> state >> skip >> skip >> skip >>
           skip >> skip >> inode) {
      std::getline(file, line);
      const bool any = local.find_first_not_of('0') == local.find(':');
      count += any && state == "0A" && is_own(inode);
    }
  }
  return count;
}

} // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "early" && launcher_rank() == "1") {
    throw std::runtime_error("no data on this rank");
  }
  if (mode == "late" && launcher_rank() == "0") {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  auto group = ddp::init_process_group();
  auto sum = torch::full({2}, static_cast<double>(group.rank()));
  if (mode == "fails" && group.rank() == 1) {
    throw std::runtime_error("no data on this rank");
  }
  if (mode == "exits" && group.rank() == 1) {
    std::exit(3);
  }
  if (mode == "forks") {
    const auto child = fork();
    if (child == 0) {
      std::exit(0);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) {
      throw std::runtime_error("the child failed");
    }
  }
  group.all_reduce(sum);
  std::printf(
      "rank %d of %d, local %d of %d, %s, sum %g, open sockets %d\n",
      static_cast<int>(group.rank()),
      static_cast<int>(group.size()),
      static_cast<int>(group.local_rank()),
      static_cast<int>(group.local_size()),
      group.backend().c_str(),
      sum[0].item<double>(),
      open_sockets());
  if (mode == "lingers" && group.rank() == std::atoi(argv[2])) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (mode == "leaves") {
    std::fflush(stdout);
    _exit(0);
  }
}
