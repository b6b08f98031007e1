// Sums of sparse tensors over MPI, which are gloo's bit for bit.

#include <tests/support/backend_checks.h>
#include <tests/support/mpi_backend.h>
#include <tests/support/nets.h>
#include <tests/support/word_net.h>

#include <ddp/reducer.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <iostream>

namespace ddp::test::mpi_sparse_test {

namespace {

ProcessGroup mpi_group() {
  return init_process_group(
      ProcessGroupOptions().backend("mpi").timeout(std::chrono::seconds(20)));
}

/// What `count` draws of places make of a tensor of `sizes`: some fall together
/// where the places are few.
torch::Tensor draw(
    const std::vector<int64_t>& sizes,
    int64_t sparse_dim,
    int64_t count,
    torch::ScalarType dtype) {
  Tensors places;
  for (int64_t i = 0; i < sparse_dim; ++i) {
    places.push_back(torch::randint(sizes[i], {count}, torch::kLong));
  }
  std::vector<int64_t> shape(sizes.begin() + sparse_dim, sizes.end());
  shape.insert(shape.begin(), count);
  const auto values = 100 * torch::randn(shape, torch::kDouble);
  return torch::sparse_coo_tensor(
      torch::stack(places),
      (c10::isSignedType(dtype) ? values : values.abs()).to(dtype),
      sizes);
}

void check_same(const torch::Tensor& a, const torch::Tensor& b) {
  REQUIRE(a.is_sparse());
  REQUIRE(a.sizes() == b.sizes());
  REQUIRE(a.is_coalesced() == b.is_coalesced());
  REQUIRE(same(a._indices(), b._indices()));
  REQUIRE(same(a._values(), b._values()));
}

/// Whether a sum in another order of the ranks has other bits.
bool order_shows(const BackendPtr& backend, const torch::Tensor& tensor) {
  std::vector<Tensors> all{Tensors(3)};
  Tensors own{tensor.to_dense()};
  for (auto& place : all[0]) {
    place = torch::empty_like(own[0]);
  }
  backend->allgather(all, own)->wait();
  const auto& parts = all[0];
  return !same(
      (parts[0] + parts[1]) + parts[2], parts[0] + (parts[1] + parts[2]));
}

/// A step of a net, whose gradients are averaged in it.
void step(WordNet& net, const ProcessGroup& group, int64_t number) {
  reset_gradients(*net);
  torch::manual_seed(100 * number + group.rank());
  const auto words = torch::randint(10, {4 + 3 * group.rank()}, torch::kLong);
  // The bag is used by all ranks, by some, by none.
  net->forward(words, number == 0 || (number == 1 && group.rank() == 2))
      .pow(2)
      .sum()
      .backward();
}

} // namespace

TEST_CASE("sums of sparse tensors over MPI are those over gloo") {
  mpi_ranks(3, [] {
    const auto group = mpi_group();
    const auto mpi = group.c10d()->getBackend(c10::kCPU);
    const auto gloo = gloo_backend(group);
    REQUIRE(mpi->getBackendName() == "mpi");
    const std::vector<std::pair<std::vector<int64_t>, int64_t>> shapes{
        {{17}, 1},
        {{17, 3}, 1},
        {{5, 4}, 2},
        {{5, 4, 2}, 2},
        {{4, 3, 2, 2}, 1}};
    torch::manual_seed(group.rank());
    int64_t shown = 0;
    for (const auto dtype :
         {torch::kFloat,
          torch::kDouble,
          torch::kUInt8,
          torch::kInt32,
          torch::kInt64}) {
      for (const auto& [sizes, sparse_dim] : shapes) {
        // Of rank 1 none, then of all; the last of nobody.
        for (const int64_t count :
             {9 * (group.rank() % 2 ? 0 : 1 + group.rank()),
              30 + 7 * group.rank(),
              int64_t{0}}) {
          const auto tensor = draw(sizes, sparse_dim, count, dtype);
          INFO(dtype << " " << tensor.sizes() << ", " << count);
          shown += order_shows(mpi, tensor);
          for (const auto& input : {tensor, tensor.coalesce()}) {
            Tensors over_mpi{input.clone()};
            Tensors over_gloo{input.clone()};
            const auto work = mpi->allreduce(over_mpi);
            gloo->allreduce(over_gloo)->wait();
            work->wait();
            check_same(over_mpi[0], over_gloo[0]);
            REQUIRE(over_mpi[0].is_coalesced());
            REQUIRE(work->result().at(0).is_same(over_mpi[0]));
          }
        }
      }
    }
    REQUIRE(shown > 5); // or the order of the sums would not have been tested
  });
}

TEST_CASE("operations keep their order around sums of sparse tensors") {
  mpi_ranks(3, [] {
    const auto backend = mpi_backend();
    const auto other = mpi_backend();
    const int64_t rank = backend->getRank();
    std::vector<Tensors> sparse;
    std::vector<Tensors> dense;
    std::vector<std::vector<Tensors>> gathered;
    std::vector<WorkPtr> works;
    for (int64_t i = 0; i < 20; ++i) {
      // All but the last operation meet ranks that are not there yet.
      if (i % 3 == rank) {
        Tensors late{torch::ones({100000})};
        other->allreduce(late)->wait();
      } else {
        Tensors early{torch::ones({100000})};
        works.push_back(other->allreduce(early));
      }
      sparse.push_back({torch::full({5 * i}, double(rank + i)).to_sparse()});
      dense.push_back({torch::full({7}, double(rank + i))});
      gathered.push_back(
          {{torch::empty({i}), torch::empty({i}), torch::empty({i})}});
      Tensors own{torch::full({i}, double(10 * rank + i))};
      works.push_back(backend->allreduce(sparse.back()));
      works.push_back(backend->allgather(gathered.back(), own));
      works.push_back(backend->allreduce(dense.back()));
    }
    works.back()->getFuture()->waitAndThrow(); // it ends by itself
    std::for_each(works.rbegin(), works.rend(), [](const WorkPtr& work) {
      work->wait();
    });
    for (int64_t i = 0; i < 20; ++i) {
      REQUIRE(sparse[i][0].to_dense().eq(3 + 3 * i).all().item<bool>());
      REQUIRE(dense[i][0].eq(3 + 3 * i).all().item<bool>());
      for (int64_t from = 0; from < 3; ++from) {
        REQUIRE(gathered[i][0][from].eq(10 * from + i).all().item<bool>());
      }
    }
  });
}

TEST_CASE("sparse tensors that do not fit together are an error on all ranks") {
  const auto outcome = mpi_ranks_outcome(3, [] {
    const auto whole = mpi_backend();
    for (const bool by_dtype : {false, true}) {
      const auto backend = mpi_backend();
      const bool differs = backend->getRank() == 1;
      Tensors tensors{
          torch::eye(differs && !by_dtype ? 5 : 4)
              .to(differs && by_dtype ? torch::kDouble : torch::kFloat)
              .to_sparse()};
      Tensors behind{torch::ones({3})};
      const auto error_of = [&](Tensors& summed) {
        return words_of<c10::DistBackendError>(
            [&] { backend->allreduce(summed)->wait(); });
      };
      REQUIRE_THAT(
          error_of(tensors), ContainsSubstring("dtype, sizes or the number"));
      REQUIRE_THAT(
          error_of(behind), ContainsSubstring("the group failed before"));
      whole->barrier({})->wait();
    }
    std::cout << "rank " + std::to_string(whole->getRank()) + " passed\n"
              << std::flush;
  });
  if (outcome) {
    require_passed(*outcome, 3);
  }
}

TEST_CASE("sparse gradients over MPI are those over gloo") {
  mpi_ranks(3, [] {
    const auto group = mpi_group();
    const auto wrapped = c10::make_intrusive<c10d::ProcessGroup>(
        group.store(), int(group.rank()), int(group.size()));
    wrapped->setBackend(
        c10::kCPU, c10d::ProcessGroup::BackendType::GLOO, gloo_backend(group));
    wrapped->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    const auto gloo = ProcessGroup::from_c10d(wrapped);
    torch::manual_seed(1);
    WordNet net;
    WordNet peer;
    copy_parameters(*net, *peer);
    const Reducer reducer(net, group);
    const Reducer peer_reducer(peer, gloo);
    for (int64_t number = 0; number < 4; ++number) {
      step(net, group, number);
      step(peer, gloo, number);
      const auto& table = net->table->weight.grad();
      check_same(table, peer->table->weight.grad());
      REQUIRE(table._nnz() > 4);
      const auto& bag = net->bag->weight.grad();
      REQUIRE(bag.defined() == (number < 2));
      if (bag.defined()) {
        check_same(bag, peer->bag->weight.grad());
      }
    }
  });
}

} // namespace ddp::test::mpi_sparse_test
