#include <tests/support/backend_checks.h>

#include <tests/support/backend_waits.h>

#include <ATen/core/ivalue.h>
#include <ddp/backends/gloo.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace ddp::test {

namespace {

/// Tensors with separate memory.
Tensors filled(int64_t size, int64_t count, int64_t value) {
  Tensors tensors;
  for (int64_t i = 0; i < size; ++i) {
    tensors.push_back(torch::full({count}, static_cast<double>(value)));
  }
  return tensors;
}

void check_lists(const BackendPtr& backend) {
  const int64_t rank = backend->getRank();
  const int64_t size = backend->getSize();
  const int64_t root = size - 1;
  Tensors all;
  for (int64_t i = 0; i < size; ++i) { // rank 0 has nothing
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
    for (int64_t i = 0; i < size; ++i) {
      REQUIRE(same(tensors[i], all[i]));
    }
  };
  Tensors own{all[rank].clone()};
  std::vector<Tensors> gathered{empty_like_all()};
  backend->allgather(gathered, own, {})->wait();
  check(gathered[0]);

  c10d::GatherOptions to_root;
  to_root.rootRank = root;
  std::vector<Tensors> at_root;
  if (rank == root) {
    at_root.push_back(empty_like_all());
  }
  backend->gather(at_root, own, to_root)->wait();
  if (rank == root) {
    check(at_root[0]);
  }

  c10d::ScatterOptions from_root;
  from_root.rootRank = root;
  std::vector<Tensors> sources;
  if (rank == root) {
    sources.push_back(all);
  }
  Tensors part{torch::full_like(all[rank], -99)};
  backend->scatter(part, sources, from_root)->wait();
  REQUIRE(same(part[0], all[rank]));

  std::vector<Tensors> contributions{all};
  part[0].fill_(-99);
  backend->reduce_scatter(part, contributions, {})->wait();
  REQUIRE(same(part[0], all[rank] * size));
}

} // namespace

void check_all_to_all(
    const BackendPtr& backend,
    torch::ScalarType dtype,
    bool with_lists) {
  const int64_t rank = backend->getRank();
  const int64_t size = backend->getSize();
  for (const bool equal : {false, true}) {
    const auto rows = [&](int64_t from, int64_t to) {
      const auto value = 10 * from + to + 1;
      const auto tensor = torch::full({equal ? 3 : from + to, 2}, value, dtype);
      return c10::isComplexType(dtype) ? tensor * c10::complex<double>(1, 2)
                                       : tensor;
    };
    Tensors inputs;
    Tensors expected;
    Tensors outputs;
    std::vector<int64_t> lengths; // empty if all are equal
    for (int64_t other = 0; other < size; ++other) {
      inputs.push_back(rows(rank, other));
      expected.push_back(rows(other, rank));
      outputs.push_back(torch::empty_like(expected.back()));
      if (!equal) {
        lengths.push_back(rank + other);
      }
    }
    auto input = torch::cat(inputs);
    auto output = torch::zeros_like(input);
    auto output_lengths = lengths; // gloo takes both lists away
    backend->alltoall_base(output, input, output_lengths, lengths, {})->wait();
    REQUIRE(same(output, torch::cat(expected)));
    if (with_lists) {
      backend->alltoall(outputs, inputs, {})->wait();
      REQUIRE(same(torch::cat(outputs), torch::cat(expected)));
    }
  }
}

void check_any_dtype(const BackendPtr& backend) {
  const int64_t rank = backend->getRank();
  const int64_t size = backend->getSize();
  for (const auto dtype :
       {torch::kFloat8_e4m3fn,
        torch::kFloat8_e5m2,
        torch::kUInt16,
        torch::kBool,
        torch::kComplexHalf,
        torch::kBFloat16}) {
    INFO(dtype);
    const auto all = values_of_all(size, 9, torch::kFloat);
    for (int64_t root = 0; root < size; ++root) {
      Tensors tensors{all[rank].to(dtype)};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      backend->broadcast(tensors, options)->wait();
      REQUIRE(same(tensors[0], all[root].to(dtype)));
    }

    auto whole = torch::zeros({9 * size}).to(dtype);
    auto own = whole.narrow(0, 9 * rank, 9);
    own.copy_(all[rank]);
    backend->_allgather_base(whole, own, {})->wait();
    REQUIRE(same(whole, torch::cat(all).to(dtype)));
  }
  // Reduced in place as well.
  auto whole = torch::ones({9 * size}) * double(rank + 1);
  auto own = whole.narrow(0, 9 * rank, 9);
  backend->_reduce_scatter_base(own, whole, {})->wait();
  const auto sum = static_cast<double>(size * (size + 1) / 2);
  REQUIRE(same(own, torch::full({9}, sum)));
  // Any dense layout, if it is the same on all ranks.
  Tensors images{torch::full({2, 3, 4, 5}, double(rank))
                     .contiguous(at::MemoryFormat::ChannelsLast)};
  backend->allreduce(images)->wait();
  REQUIRE(images[0].eq(sum - double(size)).all().item<bool>());
}

void check_movement(const BackendPtr& backend) {
  check_lists(backend);
  for (const auto dtype :
       {torch::kFloat, torch::kComplexFloat, torch::kComplexDouble}) {
    check_all_to_all(backend, dtype);
  }
  check_any_dtype(backend);
}

void check_tagged_messages(const BackendPtr& backend) {
  const auto size = backend->getSize();
  if (backend->getRank() == 0) {
    auto by_tag = filled(2, 4, 0);
    Tensors second{by_tag[1]};
    Tensors first{by_tag[0]};
    const auto late = backend->recv(second, 1, 2);
    backend->recv(first, 1, 1)->wait();
    late->wait();
    REQUIRE(same(first[0], torch::full({4}, 1.0)));
    REQUIRE(same(second[0], torch::full({4}, 2.0)));
    std::vector<bool> seen(size, false);
    for (int i = 1; i < size; ++i) {
      Tensors any{torch::zeros({2})};
      const auto work = backend->recvAnysource(any, 7);
      work->wait();
      REQUIRE(same(any[0], torch::full({2}, double(work->sourceRank()))));
      REQUIRE(!seen.at(work->sourceRank()));
      seen.at(work->sourceRank()) = true;
    }
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

void check_overlap(
    const BackendPtr& one,
    const BackendPtr& other,
    const std::function<torch::Tensor(int, const torch::Tensor&)>& make) {
  const int rank = one->getRank();
  std::vector<Tensors> tensors;
  std::vector<WorkPtr> works(10);
  for (int i = 0; i < 10; ++i) {
    tensors.push_back(
        {make(i, torch::full({1 + 99700 * i}, double(rank + i)))});
  }
  for (int step = 0; step < 10; ++step) {
    // Ranks may call different groups in different orders.
    const int i = rank == 1 ? (step + 5) % 10 : step;
    works[i] = (i < 5 ? one : other)->allreduce(tensors[i]);
  }
  for (int i = 9; i >= 0; --i) {
    works[i]->wait();
    REQUIRE(works[i]->isCompleted());
    REQUIRE(works[i]->isSuccess());
    REQUIRE(tensors[i][0].eq(3 + 3 * i).all().item<bool>());
    REQUIRE(works[i]->result().at(0).is_same(tensors[i][0]));
  }
}

void check_early_wait(const BackendPtr& backend, const BackendPtr& signals) {
  const std::chrono::milliseconds soon(50);
  if (backend->getRank() == 2) {
    signal(signals, 0, 2);
  }
  Tensors sums{torch::ones({10})};
  const auto work = backend->allreduce(sums);
  if (backend->getRank() == 0) {
    for (int i = 0; i < 3; ++i) {
      REQUIRE_THAT(
          error_after(soon, [&] { work->wait(soon); }),
          Has("not complete after a wait of 0.05 s"));
      REQUIRE(!work->isCompleted());
    }
    signal(signals, 0, 2);
  }
  work->wait();
  REQUIRE(sums[0].eq(3).all().item<bool>());
  backend->barrier({})->wait();
}

void check_left_alone(const BackendPtr& backend) {
  std::atomic<int> called{0};
  Tensors sums{torch::ones({100000})};
  auto future = backend->allreduce(sums)->getFuture();
  auto next = future->then(
      [&](c10::ivalue::Future& done) {
        const auto values = done.value().toTensorVector();
        REQUIRE(values.size() == 1);
        REQUIRE(values[0].is_same(sums[0]));
        REQUIRE(values[0].eq(3).all().item<bool>());
        // A callback may communicate and wait.
        Tensors more{torch::ones({5})};
        backend->allreduce(more)->wait();
        REQUIRE(more[0].eq(3).all().item<bool>());
        ++called;
        return c10::IValue(7);
      },
      c10::IntType::get());
  next->waitAndThrow();
  REQUIRE(called == 1);
  REQUIRE(next->value().toInt() == 7);
  // The tensor of an operation may be destroyed before the operation ends.
  auto forgotten = [&] {
    Tensors gone{torch::ones({1000000})};
    return backend->allreduce(gone)->getFuture();
  }();
  forgotten->waitAndThrow();
  REQUIRE(forgotten->value().toTensorVector()[0].eq(3).all().item<bool>());
}

void check_failed(c10d::Work& work, const BackendPtr& backend) {
  REQUIRE(work.isCompleted());
  REQUIRE(!work.isSuccess());
  REQUIRE(work.getFuture()->hasError());
  REQUIRE_THAT(
      error_after([&] { backend->barrier({})->wait(); }),
      Has("the group has already failed: all_reduce"));
}

void check_monitored_barrier(const BackendPtr& backend, bool wait_all_ranks) {
  backend->monitoredBarrier({}, false);
  c10d::BarrierOptions options;
  options.timeout = std::chrono::milliseconds(500);
  const auto barrier = [&] {
    backend->monitoredBarrier(options, wait_all_ranks);
  };
  if (backend->getRank() == 0) {
    REQUIRE_THAT(
        error_after(std::chrono::milliseconds(490), barrier),
        Has("were late: 1, 3"));
  } else if (backend->getRank() == 2) {
    REQUIRE_THROWS_AS(barrier(), c10::DistBackendError);
  }
}

BackendPtr gloo_backend(const ProcessGroup& group) {
  backends::BackendOptions options;
  options.store =
      c10::make_intrusive<c10d::PrefixStore>("gloo_too", group.store());
  options.rank = static_cast<int>(group.rank());
  options.size = static_cast<int>(group.size());
  options.timeout = group.timeout();
  options.address = "127.0.0.1";
  return backends::gloo::create(options);
}

} // namespace ddp::test
