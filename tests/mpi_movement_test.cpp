// How the MPI backend moves data between ranks.

#include <tests/support/mpi_reductions.h>

using ddp::test::Kind;
using ddp::test::mpi_backend;
using ddp::test::mpi_ranks;
using ddp::test::reduced;
using ddp::test::same;
using ddp::test::Tensors;
using ddp::test::values_of;
using ddp::test::values_of_all;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

namespace {

/// Tensors of memory of their own.
Tensors filled(int64_t size, int64_t count, int64_t value) {
  Tensors tensors;
  for (int64_t i = 0; i < size; ++i) {
    tensors.push_back(torch::full({count}, static_cast<double>(value)));
  }
  return tensors;
}

void check_lists(const BackendPtr& backend) {
  const int64_t rank = backend->getRank();
  Tensors all;
  for (int64_t i = 0; i < 3; ++i) { // rank 0 has nothing
    all.push_back(values_of(i, 5 * i));
  }
  const auto empty_like_all = [&] {
    Tensors tensors;
    for (const auto& tensor : all) {
      tensors.push_back(torch::full_like(tensor, -99));
    }
    return tensors;
  };
  const auto check = [&](const Tensors& tensors) {
    for (size_t i = 0; i < 3; ++i) {
      REQUIRE(same(tensors[i], all[i]));
    }
  };
  Tensors own{all[rank].clone()};
  std::vector<Tensors> gathered{empty_like_all()};
  backend->allgather(gathered, own, {})->wait();
  check(gathered[0]);

  c10d::GatherOptions to_two;
  to_two.rootRank = 2;
  std::vector<Tensors> at_root;
  if (rank == 2) {
    at_root.push_back(empty_like_all());
  }
  backend->gather(at_root, own, to_two)->wait();
  if (rank == 2) {
    check(at_root[0]);
  }

  c10d::ScatterOptions from_two;
  from_two.rootRank = 2;
  std::vector<Tensors> sources;
  if (rank == 2) {
    sources.push_back(all);
  }
  Tensors part{torch::full_like(all[rank], -99)};
  backend->scatter(part, sources, from_two)->wait();
  REQUIRE(same(part[0], all[rank]));

  std::vector<Tensors> contributions{all};
  part[0].fill_(-99);
  backend->reduce_scatter(part, contributions, {})->wait();
  REQUIRE(same(part[0], all[rank] * 3));
}

void check_all_to_all(const BackendPtr& backend) {
  const int64_t rank = backend->getRank();
  // Rank i has i + j rows of 2 for rank j.
  const auto value = [](int64_t from, int64_t to) {
    return torch::full({from + to, 2}, double(10 * from + to));
  };
  Tensors inputs;
  Tensors expected;
  std::vector<int64_t> lengths;
  for (int64_t other = 0; other < 3; ++other) {
    inputs.push_back(value(rank, other));
    expected.push_back(value(other, rank));
    lengths.push_back(rank + other);
  }
  Tensors outputs;
  for (const auto& tensor : expected) {
    outputs.push_back(torch::empty_like(tensor));
  }
  backend->alltoall(outputs, inputs, {})->wait();
  for (size_t i = 0; i < 3; ++i) {
    REQUIRE(same(outputs[i], expected[i]));
  }
  auto input = torch::cat(inputs);
  auto output = torch::empty_like(torch::cat(expected));
  backend->alltoall_base(output, input, lengths, lengths, {})->wait();
  REQUIRE(same(output, torch::cat(expected)));
}

void check_coalesced(const BackendPtr& backend) {
  const int64_t rank = backend->getRank();
  const auto short_ones = values_of_all(3, 4);
  const auto long_ones = values_of_all(3, 301);
  Tensors inputs{short_ones[rank].clone(), long_ones[rank].clone()};

  Tensors reduced_ones{inputs[0].clone(), inputs[1].clone()};
  backend->allreduce_coalesced(reduced_ones, {})->wait();
  REQUIRE(same(reduced_ones[0], reduced(short_ones, Kind::SUM)));
  REQUIRE(same(reduced_ones[1], reduced(long_ones, Kind::SUM)));

  Tensors wholes{torch::empty({12}), torch::empty({903})};
  backend->allgather_into_tensor_coalesced(wholes, inputs, {})->wait();
  REQUIRE(same(wholes[0], torch::cat(short_ones)));
  REQUIRE(same(wholes[1], torch::cat(long_ones)));

  Tensors parts{torch::empty({4}), torch::empty({301})};
  backend->reduce_scatter_tensor_coalesced(parts, wholes, {})->wait();
  REQUIRE(same(parts[0], inputs[0] * 3));
  REQUIRE(same(parts[1], inputs[1] * 3));

  std::vector<Tensors> lists;
  for (int64_t i = 0; i < 3; ++i) {
    lists.push_back({torch::empty({4}), torch::empty({301})});
  }
  backend->allgather_coalesced(lists, inputs, {})->wait();
  for (size_t i = 0; i < 3; ++i) {
    REQUIRE(same(lists[i][0], short_ones[i]));
    REQUIRE(same(lists[i][1], long_ones[i]));
  }
}

void check_any_dtype(const BackendPtr& backend) {
  const int64_t rank = backend->getRank();
  for (const auto dtype :
       {torch::kFloat8_e4m3fn,
        torch::kFloat8_e5m2,
        torch::kUInt16,
        torch::kBool,
        torch::kComplexHalf,
        torch::kBFloat16}) {
    INFO(dtype);
    const auto all = values_of_all(3, 9, torch::kFloat);
    Tensors tensors{all[rank].to(dtype)};
    backend->broadcast(tensors, {})->wait();
    REQUIRE(same(tensors[0], all[0].to(dtype)));

    auto whole = torch::zeros({27}).to(dtype);
    auto own = whole.narrow(0, 9 * rank, 9);
    own.copy_(all[rank]);
    backend->_allgather_base(whole, own, {})->wait();
    REQUIRE(same(whole, torch::cat(all).to(dtype)));
  }
  // Reduced in place as well.
  auto whole = torch::ones({27}) * double(rank + 1);
  auto own = whole.narrow(0, 9 * rank, 9);
  backend->_reduce_scatter_base(own, whole, {})->wait();
  REQUIRE(same(own, torch::full({9}, 6.0)));
  // Any dense layout, where it is the same on all ranks.
  Tensors images{torch::full({2, 3, 4, 5}, double(rank))
                     .contiguous(at::MemoryFormat::ChannelsLast)};
  backend->allreduce(images)->wait();
  REQUIRE(images[0].eq(3).all().item<bool>());
}

void check_messages(const BackendPtr& backend) {
  if (backend->getRank() == 0) {
    auto by_tag = filled(2, 4, 0);
    Tensors second{by_tag[1]};
    Tensors first{by_tag[0]};
    const auto late = backend->recv(second, 1, 2);
    backend->recv(first, 1, 1)->wait();
    late->wait();
    REQUIRE(same(first[0], torch::full({4}, 1.0)));
    REQUIRE(same(second[0], torch::full({4}, 2.0)));
    std::vector<bool> seen(3, false);
    for (int i = 0; i < 2; ++i) {
      Tensors any{torch::zeros({2})};
      const auto work = backend->recvAnysource(any, 7);
      work->wait();
      REQUIRE(same(any[0], torch::full({2}, double(work->sourceRank()))));
      seen.at(work->sourceRank()) = true;
    }
    REQUIRE((seen[1] && seen[2]));
    return;
  }
  if (backend->getRank() == 1) {
    auto messages = filled(2, 4, 1);
    messages[1].fill_(2);
    Tensors first{messages[0]};
    Tensors second{messages[1]};
    const auto work = backend->send(first, 0, 1);
    backend->send(second, 0, 2)->wait();
    work->wait();
  }
  Tensors own{torch::full({2}, double(backend->getRank()))};
  backend->send(own, 0, 7)->wait();
}

} // namespace

TEST_CASE("lists of tensors, which may differ in length, are moved") {
  mpi_ranks(3, [] {
    const auto backend = mpi_backend();
    check_lists(backend);
    check_all_to_all(backend);
    check_coalesced(backend);
  });
}

TEST_CASE("any dtype is moved, and messages match by rank and tag") {
  mpi_ranks(3, [] {
    const auto backend = mpi_backend();
    check_any_dtype(backend);
    check_messages(backend);
  });
}
