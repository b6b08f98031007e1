// misbehaving crash|throw|hang|catch FOLDER: after some steps rank 1 does that,
// while the others continue. With catch, once all ranks have caught an
// exception and made a file in the folder, all exit with code 1 at once, rank 1
// last: ddprun collects failures for half a second.

#include <ddp/process_group.h>
#include <torch/torch.h>

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>

namespace misbehaving {

[[gnu::noinline]] void lose_the_way() {
  raise(SIGSEGV);
  asm volatile(""); // prevents a tail call, which has no frame
}

[[gnu::noinline]] void wait_for_nobody() {
  for (;;) {
    pause();
  }
}

void misbehave(const std::string& how) {
  if (how == "crash") {
    lose_the_way();
  } else if (how == "hang") {
    wait_for_nobody();
  }
  throw std::runtime_error("rank 1 has had enough");
}

} // namespace misbehaving

namespace {

void train(const ddp::ProcessGroup& group, const std::string& how) {
  auto sum = torch::ones({1000});
  for (int step = 0;; ++step) {
    if (step == 3 && group.rank() == 1) {
      misbehaving::misbehave(how);
    }
    group.all_reduce(sum);
  }
}

/// Also true for a zombie.
bool has_ended(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string text;
  return !std::getline(file, text) || text.substr(text.rfind(')'), 3) == ") Z";
}

} // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "throw";
  auto group = ddp::init_process_group();
  if (how != "catch") {
    train(group, how);
  }
  const auto processes = group.all_gather(std::to_string(getpid()));
  const auto rank = group.rank();
  try {
    train(std::exchange(group, {}), how);
  } catch (const std::exception& error) {
    std::cout << error.what() << std::endl;
    const std::string caught = std::string(argv[2]) + "/caught_";
    std::ofstream(caught + std::to_string(rank)).flush();
    for (size_t other = 0; other < processes.size(); ++other) {
      while (!std::ifstream(caught + std::to_string(other))) {
        usleep(1000);
      }
    }
    for (const int other : {0, 2, 3}) {
      while (rank == 1 && !has_ended(processes[other])) {
        usleep(1000);
      }
    }
    std::_Exit(1);
  }
}
