#include <tests/support/free_port.h>
#include <tests/support/ranks.h>
#include <tests/support/skip.h>

#include <common/host_name.h>
#include <ddp/environment/environment.h>
#include <ddp/rendezvous/host.h>
#include <ddp/rendezvous/reception.h>
#include <ddp/rendezvous/rendezvous.h>
#include <ddp/rendezvous/store_connection.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <signal.h>

namespace ddp::test::rendezvous_test {

ProcessGroupOptions short_wait() {
  return ProcessGroupOptions().timeout(std::chrono::seconds(5));
}

/// The store of a launcher or of another program.
c10::intrusive_ptr<c10d::Store> store_at(int port) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

TEST_CASE("ranks that never come are named on every rank that did") {
  const auto outcomes = ranks(2, [] {
    // Ranks 0 and 2 of four: two ranks are not started.
    const auto rank = own_rank() * 2;
    const auto options = short_wait().world_size(4).rank(rank);
    REQUIRE_THROWS_WITH(
        init_process_group(options),
        Has(c10::str(
                "rank ",
                rank,
                " of 4 on host ",
                detail::host_name(),
                ": waited "),
            "for ranks 1 and 3, which did not join"));
  });
  for (const auto& outcome : outcomes) {
    REQUIRE(outcome.seconds.count() < 30);
  }
}

STARTED_TEST("a rank that comes when the group has formed is told so") {
  // The last process joins late, as rank 2 of 3 and as a second rank 1.
  const auto formed = folder + "formed";
  const auto both_said = folder + "said";
  const auto start = [](int64_t rank, int64_t size) {
    return init_process_group(
        ProcessGroupOptions().rank(rank).world_size(size));
  };
  if (own_rank() < 2) {
    auto group = start(own_rank(), 2);
    group.barrier();
    std::ofstream(formed).flush();
    await(both_said); // rank 0 serves the store
    return;
  }
  await(formed);
  REQUIRE_THROWS_WITH(
      start(2, 3),
      Has("different values of WORLD_SIZE: rank 2 has 3, rank 0 has 2"));
  REQUIRE_THROWS_WITH(
      start(1, 2),
      Has("rank 1 has joined twice at 127.0.0.1:",
          ". Set a different RANK for each process"));
  std::ofstream(both_said).flush();
}

/// The environment that torchrun sets, whose agent holds the store.
RankOptions with_store_at(int port) {
  return RankOptions().environment(
      {{"MASTER_PORT", std::to_string(port)},
       {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
}

/// Returns when rank 0 has accepted that rank.
void await_joined(int64_t rank) {
  const auto lobby = detail::connect_to_store(
      read_launch_environment({}), "127.0.0.1", std::chrono::seconds(30));
  auto number = lobby->get_to_str(detail::hello_key(rank));
  number.pop_back(); // the end of its line
  const auto attempt = lobby->get_to_str(detail::answer_key(number));
  c10d::PrefixStore(attempt, lobby).get(detail::joined_key(rank));
}

TEST_CASE("two processes of one RANK are told of on all ranks at once") {
  const int port = free_port();
  const bool launchers_store = GENERATE(false, true);
  const bool late = GENERATE(false, true);
  const auto store = launchers_store && !std::getenv("DDP_TEST_CALL")
      ? store_at(port)
      : nullptr;
  const auto outcomes =
      ranks(4, launchers_store ? with_store_at(port) : RankOptions(), [late] {
        // The last process has rank 1.
        const auto rank = own_rank() == 3 ? 1 : own_rank();
        if (late && own_rank() == 3) {
          await_joined(1);
        }
        REQUIRE_THROWS_WITH(
            init_process_group(ProcessGroupOptions().rank(rank)),
            Has("rank 1 has joined twice at 127.0.0.1:",
                ". Set a different RANK for each process"));
      });
  for (const auto& outcome : outcomes) {
    REQUIRE(outcome.seconds.count() < 30); // well below the timeout
  }
}

TEST_CASE("two processes of RANK 0 with a launcher's store: one tells") {
  const SharedFolder folder;
  const int port = free_port();
  const bool starts = !std::getenv("DDP_TEST_CALL");
  const auto store = starts ? store_at(port) : nullptr;
  ranks(3, with_store_at(port), [&] { // process 2 has rank 0
    const auto rank = own_rank() % 2;
    try {
      (void)init_process_group(short_wait().rank(rank));
      FAIL("rank 2 is missing");
    } catch (const c10::Error& error) {
      if (own_rank() != 1 &&
          Has("rank 0 has joined twice at 127.0.0.1:").match(error.what())) {
        std::ofstream(folder.path + "told").flush();
      }
    }
  });
  if (starts) {
    REQUIRE(std::filesystem::exists(folder.path + "told"));
  }
}

STARTED_TEST("a rank 0 that never comes is named", 1) {
  REQUIRE_THROWS_WITH(
      init_process_group(short_wait().world_size(2).rank(1)),
      Has("is rank 0 missing"));
}

STARTED_TEST("a rank 0 that stops while ranks meet holds up nobody", 2) {
  const auto flag = folder + "pid";
  // Rank 2 never joins.
  const auto options = short_wait().world_size(3);
  if (own_rank() == 0) {
    std::thread stopping([&] {
      std::this_thread::sleep_for(std::chrono::seconds(2));
      std::ofstream(flag) << getpid() << std::flush;
      raise(SIGSTOP);
    });
    REQUIRE_THROWS(init_process_group(options));
    stopping.join();
    return;
  }
  REQUIRE_THROWS(init_process_group(options));
  await(flag);
  pid_t pid = 0;
  std::ifstream(flag) >> pid;
  kill(pid, SIGCONT);
}

STARTED_TEST("the next group waits for a rank 0 that still has the last one") {
  for (int i = 0; i < 3; ++i) {
    const auto group = init_process_group();
    group.barrier();
    if (group.rank() == 0) { // the others reach the next one meanwhile
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }
}

STARTED_TEST(
    "what listens at MASTER_PORT and says nothing is an error in time",
    1) {
  const int silent = detail::listen_at("127.0.0.1", 0);
  REQUIRE_THROWS_WITH(
      init_process_group(short_wait()
                             .rank(1)
                             .world_size(3)
                             .master_addr("127.0.0.1")
                             .master_port(detail::port_of(silent))),
      Has("rank 1 of 3 could not reach rank 0's store", "does not answer"));
}

TEST_CASE("one rank's bad interface is an error on every rank at once") {
  const auto outcomes = ranks(3, [] {
    ProcessGroupOptions options;
    if (own_rank() == 1) {
      options.interface("no-such-one");
    }
    REQUIRE_THROWS_WITH(
        init_process_group(options),
        Has("rank 1 of 3: interface 'no-such-one'", "does not exist on host"));
  });
  for (const auto& outcome : outcomes) {
    REQUIRE(outcome.seconds.count() < 20);
  }
}

TEST_CASE("a host that does not resolve is an error in time") {
  const auto start = std::chrono::steady_clock::now();
  REQUIRE_THROWS_WITH(
      init_process_group(ProcessGroupOptions()
                             .device(torch::kCPU)
                             .timeout(std::chrono::seconds(1))
                             .rank(1)
                             .world_size(2)
                             .master_addr("no-such-host.invalid")
                             .master_port(29500)),
      Has("MASTER_ADDR 'no-such-host.invalid' does not resolve",
          "torchrun: by --local-addr"));
  REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("a port in use is an error that says what to do") {
  const int port = free_port();
  const int other = detail::listen_at("127.0.0.1", port);
  REQUIRE_THROWS_WITH(
      init_process_group(ProcessGroupOptions()
                             .device(torch::kCPU)
                             .rank(0)
                             .world_size(2)
                             .master_addr("127.0.0.1")
                             .master_port(port)),
      Has("set MASTER_PORT to a free port"));
  close(other);
}

RANKS_TEST("on one host the store listens on the loopback interface only", 2) {
  // In this table, 00000000 means all interfaces.
  std::ifstream table("/proc/net/tcp");
  std::string text(
      (std::istreambuf_iterator<char>(table)),
      std::istreambuf_iterator<char>());
  char entry[32];
  const auto port = std::stoi(std::getenv("MASTER_PORT"));
  std::snprintf(entry, sizeof(entry), "0100007F:%04X", port);
  REQUIRE_THAT(text, Has(entry));
  std::snprintf(entry, sizeof(entry), "00000000:%04X", port);
  REQUIRE(text.find(entry) == std::string::npos);
  group.barrier();
}

TEST_CASE("a launcher's store is used by all ranks, attempt after attempt") {
  // As under torchrun, one store serves all attempts and keeps its keys. The
  // second attempt must not read keys of the first, with or without a restart
  // count.
  for (const char* nodes : {"1", "2"}) {
    const int port = free_port();
    c10::intrusive_ptr<c10d::Store> store;
    if (!std::getenv("DDP_TEST_CALL")) {
      store = store_at(port);
    }
    for (int attempt = 0; attempt < 3; ++attempt) {
      ranks(
          3,
          RankOptions()
              .environment(
                  {{"MASTER_PORT", std::to_string(port)},
                   {"GROUP_WORLD_SIZE", nodes},
                   {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                   {"TORCHELASTIC_RESTART_COUNT", std::to_string(attempt)}})
              .exit_codes({{1, attempt < 2 ? 9 : 0}})
              .timeout(std::chrono::seconds(30)),
          [attempt] {
            auto group = init_process_group();
            if (attempt < 2 && group.rank() == 1) {
              _exit(9);
            }
            if (attempt == 2) {
              auto tensor = torch::ones({1});
              group.all_reduce(tensor);
              REQUIRE(tensor.item<double>() == 3);
            }
          });
    }
  }
}

STARTED_TEST("rank 0 serves the store at a port that the program chose") {
  const auto port = std::stoi(std::getenv("MASTER_PORT"));
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  setenv("MASTER_PORT", "1", 1); // the launcher's
  init_process_group(ProcessGroupOptions().master_port(port)).barrier();
}

void become_task_of_slurm() {
  setenv("SLURM_PROCID", std::getenv("RANK"), 1);
  for (const char* name :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    unsetenv(name);
  }
}

int port_of_slurm_job(const std::string& job) {
  return 61440 + std::stoi(job) * 8 % 4088;
}

/// A job whose first two ports are free.
std::string free_slurm_job() {
  for (int number = 1000000 + getpid();; ++number) {
    const auto job = std::to_string(number);
    const int port = port_of_slurm_job(job);
    if (is_free(port) && is_free(port + 1)) {
      return job;
    }
  }
}

TEST_CASE("tasks of a Slurm step find each other among other programs") {
  // Another job's store has the first port, and a server that never answers has
  // the second.
  const bool starter = !std::getenv("DDP_TEST_CALL");
  const auto job = starter ? free_slurm_job() : std::getenv("SLURM_JOB_ID");
  const auto port = port_of_slurm_job(job);
  c10::intrusive_ptr<c10d::Store> other;
  int mute = -1;
  if (starter) {
    other = store_at(port);
    mute = detail::listen_at("127.0.0.1", port + 1);
  }
  ranks(
      3,
      RankOptions().environment(
          {{"SLURM_JOB_ID", job},
           {"SLURM_STEP_ID", "0"},
           {"SLURM_STEP_NUM_TASKS", "3"},
           {"SLURM_STEP_NUM_NODES", "1"},
           {"SLURM_STEP_NODELIST", "no-such-host.invalid"}}),
      [] {
        become_task_of_slurm();
        auto group = init_process_group();
        auto sum = torch::full({1}, static_cast<double>(group.rank()));
        group.all_reduce(sum);
        REQUIRE(sum.item<double>() == 3);
        REQUIRE(group.local_rank() == group.rank());
      });
  close(mute);
}

std::map<std::string, std::string> step_on_two_hosts(
    const std::string& first,
    int tasks) {
  return {
      {"SLURM_JOB_ID", std::to_string(getpid())},
      {"SLURM_STEP_ID", "0"},
      {"SLURM_STEP_NUM_TASKS", std::to_string(tasks)},
      {"SLURM_STEP_NUM_NODES", "2"},
      {"SLURM_STEP_NODELIST", first + ",other"}};
}

TEST_CASE("tasks of a Slurm step meet at an IPv6 address") {
  // Another program has the first port, but only of this address.
  auto variables = step_on_two_hosts("0::1", 3);
  int other = -1;
  if (!std::getenv("DDP_TEST_CALL")) {
    variables["SLURM_JOB_ID"] = free_slurm_job();
    try {
      other = detail::listen_at(
          "::1", port_of_slurm_job(variables["SLURM_JOB_ID"]));
    } catch (const c10::DistNetworkError&) {
      skip("no IPv6");
    }
  }
  ranks(3, RankOptions().environment(variables), [] {
    become_task_of_slurm();
    init_process_group().barrier();
  });
  close(other);
}

TEST_CASE("a rank 0 that is not on a Slurm step's first host ends in time") {
  const auto outcomes =
      ranks(1, RankOptions().environment(step_on_two_hosts("100::1", 2)), [] {
        become_task_of_slurm();
        REQUIRE_THROWS_WITH(
            init_process_group(
                ProcessGroupOptions().timeout(std::chrono::seconds(2))),
            Has("could not serve the store", "If not, set MASTER_ADDR"));
      });
  REQUIRE(outcomes[0].seconds.count() < 15);
}

} // namespace ddp::test::rendezvous_test
