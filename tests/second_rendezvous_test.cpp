// init_process_group after a call that failed.
#include <tests/support/ranks.h>

#include <ddp/environment/environment.h>
#include <ddp/rendezvous/rank_info.h>
#include <ddp/rendezvous/reception.h>
#include <ddp/rendezvous/store_connection.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

namespace ddp::test::second_rendezvous_test {

/// Joins the rendezvous as a rank with a fault, and does not read the reply, so
/// that rank 0 keeps its store for two seconds. Returns when the store has
/// ended.
void join_with_fault() {
  const auto lobby = detail::connect_to_store(
      read_launch_environment({}), "127.0.0.1", std::chrono::seconds(30));
  detail::say_hello(*lobby, own_rank(), "1");
  const auto attempt = lobby->get_to_str(detail::answer_key("1"));
  RankInfo self;
  self.world_size = 3;
  self.fault = "it has no data";
  c10d::PrefixStore room(attempt, lobby);
  room.set(detail::joined_key(own_rank()), json_of(self).dump());
  const auto ask_forever = [&] {
    for (;;) {
      lobby->check({"any"});
    }
  };
  REQUIRE_THROWS_AS(ask_forever(), c10::DistNetworkError);
}

STARTED_TEST("a rank that tries again first waits for rank 0's next store") {
  if (own_rank() == 2) {
    join_with_fault();
  } else {
    REQUIRE_THROWS_WITH(
        init_process_group(), Has("rank 2 of 3: it has no data"));
  }
  init_process_group().barrier(); // rank 1 meets the first store
}

void try_again_at_a_taken_port(const ProcessGroupOptions& options) {
  if (own_rank() > 0) {
    init_process_group(options).barrier();
    return;
  }
  // It does not listen, so the others wait.
  FileDescriptor holder(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto port = std::stoi(std::getenv("MASTER_PORT"));
  place.sin_port = htons(static_cast<uint16_t>(port));
  REQUIRE(
      bind(holder.get(), reinterpret_cast<sockaddr*>(&place), sizeof(place)) ==
      0);
  REQUIRE_THROWS_WITH(
      init_process_group(options), Has("set MASTER_PORT to a free port"));
  const auto end = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    holder.reset();
  });
  init_process_group(options).barrier();
}

STARTED_TEST("a rank 0 that tries again waits for its port") {
  try_again_at_a_taken_port({});
}

STARTED_TEST("a rank 0 that tries again waits for its interface's port") {
  try_again_at_a_taken_port(ProcessGroupOptions().interface("lo"));
}

} // namespace ddp::test::second_rendezvous_test
