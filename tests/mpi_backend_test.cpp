// What each operation of the MPI backend computes and moves.

#include <tests/support/mpi_backend.h>

using ddp::test::mpi_backend;
using ddp::test::mpi_ranks;
using ddp::test::same;
using ddp::test::Tensors;
using ddp::test::values_of;
using ddp::test::values_of_all;
using Kind = c10d::ReduceOp::RedOpType;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

namespace {

const std::vector<int64_t> kSizes{0, 1, 7, 13, 1000, 100003};

c10d::AllreduceOptions reduce_by(Kind kind) {
  c10d::AllreduceOptions options;
  options.reduceOp = kind;
  return options;
}

torch::Tensor reduced(const Tensors& all, Kind kind) {
  auto result = all.front().clone();
  for (size_t i = 1; i < all.size(); ++i) {
    const auto& next = all[i];
    switch (kind) {
      case Kind::PRODUCT:
        result = result * next;
        break;
      case Kind::MIN:
        result = torch::minimum(result, next);
        break;
      case Kind::MAX:
        result = torch::maximum(result, next);
        break;
      case Kind::BAND:
        result = torch::bitwise_and(result, next);
        break;
      case Kind::BOR:
        result = torch::bitwise_or(result, next);
        break;
      case Kind::BXOR:
        result = torch::bitwise_xor(result, next);
        break;
      default:
        result = result + next;
    }
  }
  return kind == Kind::AVG ? result / static_cast<double>(all.size()) : result;
}

torch::Tensor all_reduced(
    const BackendPtr& backend,
    torch::ScalarType dtype,
    int64_t count,
    Kind kind) {
  Tensors tensors{values_of(backend->getRank(), count, dtype)};
  backend->allreduce(tensors, reduce_by(kind))->wait();
  return tensors[0];
}

void check_all_reduce(
    const BackendPtr& backend,
    torch::ScalarType dtype,
    const std::vector<Kind>& kinds) {
  const auto all = values_of_all(backend->getSize(), 1001, dtype);
  for (const auto kind : kinds) {
    INFO("dtype " << dtype << ", operation " << int(kind));
    REQUIRE(same(
        all_reduced(backend, dtype, 1001, kind), reduced(all, kind).to(dtype)));
  }
}

/// Tensors with a different value in each place.
Tensors filled(int64_t size, int64_t count, int64_t value) {
  Tensors tensors;
  for (int64_t i = 0; i < size; ++i) {
    tensors.push_back(torch::full({count}, static_cast<double>(value)));
  }
  return tensors;
}

void check_dtypes_of_arithmetic(const BackendPtr& backend) {
  REQUIRE(backend->getBackendName() == "mpi");
  const std::vector<Kind> arithmetic{
      Kind::SUM, Kind::PRODUCT, Kind::MIN, Kind::MAX};
  auto bitwise = arithmetic;
  bitwise.insert(bitwise.end(), {Kind::BAND, Kind::BOR, Kind::BXOR});
  auto mean = arithmetic;
  mean.push_back(Kind::AVG);
  for (const auto dtype :
       {torch::kUInt8,
        torch::kInt8,
        torch::kInt16,
        torch::kInt32,
        torch::kInt64}) {
    check_all_reduce(backend, dtype, bitwise);
  }
  for (const auto dtype :
       {torch::kHalf, torch::kBFloat16, torch::kFloat, torch::kDouble}) {
    check_all_reduce(backend, dtype, mean);
  }
  for (const auto dtype : {torch::kComplexFloat, torch::kComplexDouble}) {
    check_all_reduce(backend, dtype, {Kind::SUM, Kind::PRODUCT, Kind::AVG});
  }
}

void check_other_dtypes(const BackendPtr& backend) {
  const auto sum = reduced(values_of_all(3, 50, torch::kUInt8), Kind::SUM);
  for (const auto dtype : {torch::kUInt16, torch::kUInt32, torch::kUInt64}) {
    REQUIRE(same(all_reduced(backend, dtype, 50, Kind::SUM), sum.to(dtype)));
  }
  REQUIRE(same(
      all_reduced(backend, torch::kComplexHalf, 50, Kind::SUM),
      reduced(values_of_all(3, 50), Kind::SUM).to(torch::kComplexHalf)));

  const auto truths = values_of_all(3, 50, torch::kBool);
  const auto any = truths[0] | truths[1] | truths[2];
  const auto every = truths[0] & truths[1] & truths[2];
  const auto odd = truths[0] ^ truths[1] ^ truths[2];
  REQUIRE(!torch::equal(any, every));
  for (const auto kind : {Kind::SUM, Kind::MAX, Kind::BOR}) {
    REQUIRE(same(all_reduced(backend, torch::kBool, 50, kind), any));
  }
  for (const auto kind : {Kind::PRODUCT, Kind::MIN, Kind::BAND}) {
    REQUIRE(same(all_reduced(backend, torch::kBool, 50, kind), every));
  }
  REQUIRE(same(all_reduced(backend, torch::kBool, 50, Kind::BXOR), odd));
}

void check_rounding(const BackendPtr& backend) {
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    torch::manual_seed(backend->getRank());
    Tensors tensors{torch::randn({1000}).to(dtype)};
    auto exact = tensors[0].to(torch::kDouble);
    Tensors exacts{exact};
    backend->allreduce(tensors)->wait();
    backend->allreduce(exacts)->wait();
    const double step = dtype == torch::kHalf ? 1.0 / 1024 : 1.0 / 128;
    REQUIRE(torch::allclose(
        tensors[0].to(torch::kDouble), exacts[0], step, 2 * step));
  }
}

void check_reduce(const BackendPtr& backend) {
  const auto all = values_of_all(3, 100);
  Tensors tensors{all[backend->getRank()].clone()};
  c10d::ReduceOptions options;
  options.rootRank = 1;
  options.reduceOp = Kind::AVG;
  backend->reduce(tensors, options)->wait();
  REQUIRE(same(
      tensors[0],
      backend->getRank() == 1 ? reduced(all, Kind::AVG)
                              : all[backend->getRank()]));
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

void check_refusals(const BackendPtr& backend) {
  const auto error = [&](const torch::Tensor& tensor, Kind kind) {
    try {
      Tensors tensors{tensor};
      backend->allreduce(tensors, reduce_by(kind))->wait();
    } catch (const c10::ValueError& thrown) {
      return std::string(thrown.what_without_backtrace());
    }
    return std::string();
  };
  REQUIRE_THAT(
      error(torch::ones({4, 4}).t().slice(0, 0, 3), Kind::SUM),
      ContainsSubstring("strides"));
  REQUIRE_THAT(
      error(torch::eye(3).to_sparse(), Kind::SUM), ContainsSubstring("Sparse"));
  REQUIRE_THAT(
      error(torch::ones({2}).to(torch::kFloat8_e5m2), Kind::SUM),
      ContainsSubstring("Float8_e5m2"));
  REQUIRE_THAT(error(torch::ones({2}), Kind::BXOR), ContainsSubstring("BXOR"));
  REQUIRE_THAT(
      error(torch::ones({2}, torch::kLong), Kind::AVG),
      ContainsSubstring("AVG"));
  REQUIRE_THAT(
      error(torch::ones({2}, torch::kComplexFloat), Kind::MAX),
      ContainsSubstring("MAX"));
  // Nothing of this was sent.
  REQUIRE(error(torch::ones({2}), Kind::SUM).empty());
  Tensors two{torch::ones({2}), torch::ones({2})};
  REQUIRE_THROWS_AS(backend->allreduce(two), c10::ValueError);
  c10d::BroadcastOptions root;
  root.rootRank = 3;
  Tensors one{torch::ones({2})};
  REQUIRE_THROWS_AS(backend->broadcast(one, root), c10::ValueError);
  REQUIRE_THROWS_AS(backend->send(one, 0, -1), c10::ValueError);
}

} // namespace

TEST_CASE("all_reduce and reduce have every operation for every dtype") {
  mpi_ranks(3, [] {
    const auto backend = mpi_backend();
    check_dtypes_of_arithmetic(backend);
    check_other_dtypes(backend);
    check_rounding(backend);
    check_reduce(backend);
  });
}

TEST_CASE("tensors of any size are passed in pieces where they are long") {
  mpi_ranks(4, [] {
    for (const int64_t largest :
         {ddp::backends::mpi::kLargestPiece, int64_t(7), int64_t(4001)}) {
      const auto backend = mpi_backend(largest);
      const int64_t rank = backend->getRank();
      for (const auto count : kSizes) {
        if (count / largest > 2000) {
          continue;
        }
        INFO(count << " elements in pieces of " << largest);
        const auto all = values_of_all(4, count);
        REQUIRE(same(
            all_reduced(backend, torch::kFloat, count, Kind::SUM),
            reduced(all, Kind::SUM)));

        Tensors tensors{values_of(rank, count)};
        c10d::BroadcastOptions root;
        root.rootRank = 2;
        backend->broadcast(tensors, root)->wait();
        REQUIRE(same(tensors[0], all[2]));

        auto own = all[rank];
        auto gathered = torch::empty({4 * count});
        backend->_allgather_base(gathered, own, {})->wait();
        REQUIRE(same(gathered, torch::cat(all)));

        auto part = torch::empty({count});
        auto whole = torch::cat(all) * double(rank + 1);
        backend->_reduce_scatter_base(part, whole, {})->wait();
        REQUIRE(same(part, all[rank] * 10));

        std::vector<int64_t> even;
        auto exchanged = torch::empty({4 * count});
        backend->alltoall_base(exchanged, whole, even, even, {})->wait();
        REQUIRE(same(exchanged, torch::cat({own, own * 2, own * 3, own * 4})));

        Tensors message{rank == 1 ? all[1].clone() : torch::empty({count})};
        if (rank == 1) {
          backend->send(message, 3, 5)->wait();
        } else if (rank == 3) {
          backend->recv(message, 1, 5)->wait();
          REQUIRE(same(message[0], all[1]));
        }
      }
    }
  });
}

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

TEST_CASE("what the MPI backend cannot do is refused with the reason") {
  mpi_ranks(3, [] {
    const auto backend = mpi_backend();
    check_refusals(backend);
  });
}
