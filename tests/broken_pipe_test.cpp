#include <tests/support/ranks.h>

namespace ddp::test::broken_pipe_test {

/// The threads of this name, and whether each blocks SIGPIPE.
std::vector<bool> blocks_sigpipe(const std::string& name) {
  std::vector<bool> result;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string own_name, key, value;
    uint64_t blocked = 0;
    for (std::string line; std::getline(status, line);) {
      std::istringstream words(line);
      words >> key >> value;
      own_name = key == "Name:" ? value : own_name;
      blocked = key == "SigBlk:" ? std::stoull(value, nullptr, 16) : blocked;
    }
    if (own_name == name) {
      result.push_back((blocked >> (SIGPIPE - 1) & 1) == 1);
    }
  }
  return result;
}

RANKS_TEST("no rank ends by SIGPIPE, silently, where another one has ended") {
  auto tensor = torch::ones({1});
  group.all_reduce(tensor);
  const auto gloos = blocks_sigpipe("pt_gloo_runloop");
  REQUIRE(gloos.empty() == (group.backend() != "gloo"));
  const auto stores = blocks_sigpipe("pt_tcpstore_uv");
  REQUIRE(stores.size() == (group.rank() == 0 ? 1 : 0));
  for (const auto& threads : {gloos, stores}) {
    REQUIRE(std::count(threads.begin(), threads.end(), false) == 0);
  }
  sigset_t own;
  pthread_sigmask(SIG_BLOCK, nullptr, &own);
  REQUIRE(sigismember(&own, SIGPIPE) == 0); // the program's own is its own
}

} // namespace ddp::test::broken_pipe_test
