// Groups over the hierarchical backend: shared memory within hosts, which are
// simulated, and gloo between them.

#include <tests/support/failures.h>
#include <tests/support/values.h>

#include <ddp/process_group/process_group_impl.h>
#include <ddp/reducer.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace ddp::test::hierarchical_group_test {

using std::chrono::seconds;

using Hosts = std::vector<std::string>;

/// A group of the same ranks that assumes that they are on `hosts`.
ProcessGroup spread_over(const ProcessGroup& world, const Hosts& hosts) {
  auto& impl = detail::ProcessGroupImpl::of(world);
  impl.hosts = hosts;
  impl.backend = "hierarchical";
  return world.duplicate();
}

void check_group(const ProcessGroup& group) {
  const auto size = group.size();
  REQUIRE(group.backend() == "hierarchical");
  auto sum = torch::full({1'500'000}, 1.0 + group.rank());
  group.all_reduce(sum);
  REQUIRE(torch::equal(sum, torch::full({1'500'000}, size * (size + 1) / 2.0)));
  REQUIRE(group.broadcast(std::to_string(group.rank()), 1) == "1");
  // Tensors of different lengths.
  const auto all = group.all_gather(torch::arange(group.rank()));
  for (int64_t rank = 0; rank < size; ++rank) {
    REQUIRE(torch::equal(all[rank], torch::arange(rank)));
  }
  group.barrier();
}

TEST_CASE("a group over hosts and its duplicates communicate") {
  for (const auto& hosts : std::vector<Hosts>{
           {"a", "a", "b", "b"},
           {"a", "b", "a", "b"},
           {"a", "b", "c", "b", "a"}}) {
    ranks(static_cast<int>(hosts.size()), [&](ProcessGroup world) {
      const auto group = spread_over(world, hosts);
      check_group(group);
      check_group(group.duplicate());
      REQUIRE(group.local_size() >= 1);
    });
  }
}

RANKS_TEST("parts of a group over hosts get the backend for their hosts", 4) {
  const auto spread = spread_over(group, {"a", "b", "a", "b"});
  const auto rank = group.rank();
  const auto host = spread.split(rank % 2);
  REQUIRE(host.backend() == "shm");
  REQUIRE(sum_of_ranks(host, group) == (rank % 2 ? 4 : 2));
  const auto across = spread.split(rank / 2);
  REQUIRE(across.backend() == "gloo");
  REQUIRE(sum_of_ranks(across, group) == (rank / 2 ? 5 : 1));
  const auto three = spread.split(rank == 1 ? -1 : 0, -rank);
  REQUIRE(three.backend() == (rank == 1 ? "none" : "hierarchical"));
  REQUIRE(sum_of_ranks(three, group) == (rank == 1 ? 1 : 5));
  group.barrier(); // rank 0 serves the store of all parts
}

RANKS_TEST("a Reducer averages over hosts, dense and sparse gradients", 3) {
  const auto spread = spread_over(group, {"a", "a", "b"});
  torch::manual_seed(1);
  torch::nn::Embedding embedding(
      torch::nn::EmbeddingOptions(10, 4).sparse(true));
  torch::nn::Linear linear(4, 3);
  const Reducer reducer(linear, spread);
  const Reducer of_embedding(embedding, spread);
  for (int step = 0; step < 3; ++step) {
    linear->zero_grad();
    embedding->zero_grad();
    const auto words = torch::tensor({spread.rank(), int64_t(7)});
    linear->forward(embedding->forward(words)).sum().backward();
    const auto weights = linear->weight.detach().sum(0);
    const auto grad = embedding->weight.grad().to_dense();
    for (int64_t rank = 0; rank < 3; ++rank) {
      REQUIRE(grad[rank].allclose(weights / 3));
    }
    REQUIRE(grad[7].allclose(weights));
    REQUIRE(torch::equal(linear->bias.grad(), torch::full({3}, 2.0)));
  }
}

TEST_CASE(
    "where a rank of a group over hosts is killed, the others fail within "
    "seconds") {
  const Hosts hosts{"a", "a", "b", "b"};
  for (const int victim : {3, 2}) { // the second leads its host
    ranks(4, RankOptions().exit_codes({{victim, 7}}), [&] {
      const auto world = init_process_group(kTimeout);
      const auto group = spread_over(world, hosts);
      group.barrier();
      if (group.rank() == victim) {
        _exit(7);
      }
      const auto start = Clock::now();
      const auto error = all_reduce_error(group);
      REQUIRE_THAT(error, Has("over hierarchical failed"));
      if (victim == 3) { // else a leader's lost connection may be told first
        REQUIRE_THAT(
            error,
            Has("failed: within the host (shm): rank 3 (process ",
                "has ended"));
      }
      REQUIRE(seconds_since(start) < 20);
      meet_at_store(world, {"0", "1", victim == 3 ? "2" : "3"});
    });
  }
}

RANKS_TEST(
    "a timeout names the part that failed, and the rank that did not come",
    3,
    ProcessGroupOptions().timeout(seconds(3))) {
  for (const auto& [hosts, part] : std::vector<std::pair<Hosts, std::string>>{
           {{"a", "a", "a"}, "within the host (shm)"},
           {{"a", "b", "c"}, "between hosts (gloo)"}}) {
    const auto spread = spread_over(group, hosts);
    if (group.rank() < 2) {
      REQUIRE_THAT(
          all_reduce_error(spread),
          Has("all_reduce over hierarchical failed: " + part +
                  ": timed out after 3 s; ",
              "; rank 2 has not reached all_reduce of 4 Float"));
    }
    meet_at_store(spread, {"0", "1", "2"});
  }
}

} // namespace ddp::test::hierarchical_group_test
