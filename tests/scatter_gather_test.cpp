#include <tests/support/mpi_backend.h>
#include <tests/support/values.h>

#include <ddp/parallel_forward.h>

namespace ddp::test::scatter_gather_test {

using torch::Tensor;

/// Scatters and gathers tensors of all dtypes and many layouts.
void check_contents(const ProcessGroup& group) {
  const auto round_trip = [&](const Tensor& tensor) {
    CAPTURE(tensor.dtype(), tensor.sizes(), tensor.strides());
    const auto share = scatter(tensor, group, 1);
    const auto plain = tensor.resolve_conj().resolve_neg();
    REQUIRE(same(share, plain.tensor_split(group.size())[group.rank()]));
    REQUIRE(share.is_contiguous());
    REQUIRE(same(gather(share, group, kAllRanks), plain));
  };
  torch::manual_seed(4);
  const auto numbers = torch::arange(42).reshape({7, 2, 3});
  for (const auto& ones : ones_of_all_dtypes()) {
    round_trip(numbers.to(ones.scalar_type()));
  }
  const auto complex = torch::view_as_complex(torch::randn({5, 3, 2}));
  round_trip(complex.conj());
  round_trip(torch::_neg_view(torch::randn({5, 3}))); // negated when read
  round_trip(numbers.transpose(0, 2));
  round_trip(numbers.slice(0, 1, 7, 2).select(1, 1));
  round_trip(torch::ones({1, 4}).expand({6, 4}));
  round_trip(
      torch::rand({5, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast));
  round_trip(torch::empty({5, 0, 2}));
  round_trip(torch::rand({7}));
  round_trip(torch::rand({1 << 20}));
  REQUIRE_FALSE(
      scatter(torch::ones({4}, torch::requires_grad()), group).requires_grad());
}

/// Shares of any lengths.
void check_uneven_shares(const ProcessGroup& group) {
  const auto rank = group.rank();
  const std::vector<int64_t> rows{0, 1, 5, 3};
  std::vector<Tensor> all;
  for (int64_t r = 0; r < group.size(); ++r) {
    all.push_back(torch::arange(3 * rows[r]).reshape({rows[r], 3}) + 100 * r);
  }
  for (const int64_t destination : {int64_t{2}, kAllRanks}) {
    const bool gets = destination == kAllRanks || destination == rank;
    const auto joined = gather(all[rank], group, destination);
    REQUIRE((gets ? same(joined, torch::cat(all)) : !joined.defined()));
    const auto from_one =
        gather(rank == 1 ? all[1] : Tensor(), group, destination);
    REQUIRE((gets ? same(from_one, all[1]) : !from_one.defined()));
    REQUIRE_FALSE(gather(Tensor(), group, destination).defined());
  }
}

RANKS_TEST("any dtype and layout is scattered and gathered bit for bit") {
  check_contents(group);
  check_uneven_shares(group);
}

RANKS_TEST("parts of the ranks scatter and gather as all ranks do", 4) {
  const auto rank = group.rank();
  for (const auto& part :
       {group.split(rank == 1 ? -1 : 0), group.split(0, -rank)}) {
    if (part.size() > 1) {
      check_contents(part);
      check_uneven_shares(part);
    }
  }
  group.barrier(); // rank 0 serves the store of all parts
}

MPI_TEST("tensors are scattered and gathered over MPI") {
  const auto group = mpi_group();
  check_contents(group);
  check_uneven_shares(group);
}

TEST_CASE("a group of one scatters and gathers without others") {
  const ProcessGroup group;
  for (const int64_t rows : {0, 3}) {
    const auto batch = torch::rand({rows, 4});
    REQUIRE(same(scatter(batch, group), batch));
    REQUIRE(same(gather(batch, group), batch));
    REQUIRE(same(gather(batch, group, kAllRanks), batch));
  }
  REQUIRE_FALSE(gather(Tensor(), group, kAllRanks).defined());
  REQUIRE_THROWS_AS(scatter(Tensor(), group), c10::ValueError);
  REQUIRE_THROWS_AS(gather(torch::ones({}), group), c10::ValueError);
  REQUIRE_THROWS_AS(scatter(torch::ones({1}), group, 1), c10::ValueError);
}

RANKS_TEST("what cannot be scattered is the same error on all ranks") {
  const auto error = [&](const Tensor& input, int64_t root = 1) {
    return error_on_all(group, [&] { scatter(input, group, root); });
  };
  const auto from_1 = [](const std::string& why) {
    return "scatter from rank 1 failed: rank 1: the input " + why;
  };
  REQUIRE(
      error(Tensor()) ==
      from_1("is an undefined tensor: pass a tensor of shape [n, ...]"));
  REQUIRE_THAT(error(torch::ones({})), Has(from_1("has shape []")));
  REQUIRE(
      error(torch::ones({3}).to_sparse()) ==
      from_1("is Sparse: call to_dense() on it"));
  REQUIRE_THAT(
      error(torch::ones({3}, torch::kMeta)),
      Has(from_1("cannot be sent from meta through cpu: Cannot copy out")));
  REQUIRE(
      error(torch::ones({3}), 3) ==
      "scatter from rank 3 failed: ranks 0-2: rank 3 does not exist in a "
      "group of 3");
  REQUIRE_FALSE(error(torch::ones({3}), -1).empty());
  REQUIRE(
      error(torch::ones({3}), group.rank() / 2) ==
      "the ranks made different calls: ranks 0 and 1: scatter from rank 0; "
      "rank 2: scatter from rank 1");
  check_usable(group);
}

RANKS_TEST("shares that cannot be joined are the same error on all ranks", 4) {
  const auto rank = group.rank();
  const auto error = [&](const Tensor& share, int64_t destination = 2) {
    return error_on_all(group, [&] { gather(share, group, destination); });
  };
  const std::string unlike =
      "gather to rank 2 failed: the shares must agree in dtype and in all "
      "sizes except the first, but are ";
  // An undefined share, an empty one of another width, and differing ones.
  REQUIRE(
      error(
          rank == 0       ? Tensor()
              : rank == 1 ? torch::empty({0, 5})
                          : torch::ones({rank, 4})) ==
      unlike + "rank 1: Float [*, 5]; ranks 2 and 3: Float [*, 4]");
  REQUIRE(
      error(torch::ones({2}, rank == 3 ? torch::kHalf : torch::kFloat)) ==
      unlike + "ranks 0-2: Float [*]; rank 3: Half [*]");
  REQUIRE_THAT(
      error(rank == 3 ? torch::ones({}) : torch::ones({1}), kAllRanks),
      Has("gather to all ranks failed: rank 3: the share has shape []"));
  REQUIRE(
      error(torch::ones({1}), 4) ==
      "gather to rank 4 failed: ranks 0-3: rank 4 does not exist in a group of "
      "4");
  REQUIRE_THAT(
      error_on_all(
          group,
          [&] {
            rank == 0 ? scatter(torch::ones({1}), group)
                      : gather(torch::ones({1}), group);
          }),
      Has("rank 0: scatter from rank 0; ranks 1-3: gather to"));
  check_usable(group);
}

} // namespace ddp::test::scatter_gather_test
