// Connecting ranks after the rendezvous.
#include <ddp/failure/heartbeat.h>
#include <ddp/process_group/process_group_impl.h>
#include <tests/support/failures.h>
#include <tests/support/ranks.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace ddp::test::connecting_test {

STARTED_TEST("a rank that cannot connect is named by the others") {
  const bool bad = own_rank() == 1;
  if (bad) {
    setenv("GLOO_SOCKET_IFNAME", "no-such-one", /*replace=*/1);
  }
  const auto start = Clock::now();
  const auto text = error_of([] { (void)init_process_group(kTimeout); });
  REQUIRE_THAT(text, Has("connecting over gloo failed", "no-such-one"));
  if (!bad) {
    REQUIRE_THAT(text, Has("rank 1 of 3 on host"));
  }
  REQUIRE(seconds_since(start) < 20);
}

RANKS_TEST(
    "ranks that do not come to connect are named",
    3,
    ProcessGroupOptions().timeout(std::chrono::seconds(5))) {
  if (group.rank() != 2) {
    const auto& whole = detail::ProcessGroupImpl::of(group);
    detail::ProcessGroupImpl part;
    part.rank = whole.rank;
    part.size = whole.size;
    part.backend = whole.backend;
    part.timeout = whole.timeout;
    part.address = whole.address;
    part.hosts = whole.hosts;
    part.store = c10::make_intrusive<c10d::PrefixStore>("part", whole.store);
    part.failure_store = whole.failure_store;
    part.scope = "/part";
    const detail::heartbeat::Activity activity("split");
    const auto start = Clock::now();
    REQUIRE_THAT(
        error_of([&] { detail::connect(part); }),
        Has("; rank 2 has not reached split"));
    REQUIRE(seconds_since(start) < 15);
  }
  meet_at_store(group, {"0", "1", "2"});
}

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
  REQUIRE(sigismember(&own, SIGPIPE) == 0); // the program's mask is unchanged
}

} // namespace ddp::test::connecting_test
