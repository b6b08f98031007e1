// The results of the hierarchical backend, for several placements of ranks on
// hosts.

#include <tests/support/backend_checks.h>
#include <tests/support/hierarchical.h>
#include <tests/support/ranks.h>

#include <ddp/backends/shm.h>

namespace ddp::test::hierarchical_test {

const std::vector<Hosts> kPlacements{
    {"a", "a", "a"},
    {"a", "b", "c"},
    {"a", "a", "b"},
    {"a", "a", "b", "b"},
    {"a", "b", "a", "b"},
    {"a", "b", "c", "b", "a"}};

/// Runs `check` on the ranks of each placement, over gloo within hosts and, for
/// the last two, over shared memory.
template <typename Check>
void everywhere(Check check) {
  for (const auto local : {backends::gloo::create, backends::shm::create}) {
    const size_t first = local == backends::gloo::create ? 0 : 4;
    for (size_t i = first; i < kPlacements.size(); ++i) {
      const auto& hosts = kPlacements[i];
      ranks(static_cast<int>(hosts.size()), [&](ProcessGroup group) {
        check(hierarchical_backend(group, hosts, "parts", local), group);
      });
    }
  }
}

Tensors empty_like_all(const Tensors& all) {
  Tensors tensors;
  for (const auto& tensor : all) {
    tensors.push_back(torch::empty_like(tensor));
  }
  return tensors;
}

void require_same(const Tensors& found, const Tensors& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    REQUIRE(same(found[i], expected[i]));
  }
}

void check_sums(
    const BackendPtr& backend,
    int64_t count,
    const std::vector<Kind>& kinds = {Kind::SUM}) {
  const auto all = values_of_all(backend->getSize(), count);
  for (const auto kind : kinds) {
    INFO("operation " << int(kind));
    const auto found = all_reduced(backend, torch::kFloat, count, kind);
    REQUIRE(same(found, reduced(all, kind)));
  }
}

void check_layouts(const BackendPtr& backend) {
  const auto all = values_of_all(backend->getSize(), 120);
  const auto image = [](const torch::Tensor& values) {
    return values.view({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  };
  Tensors tensors{image(all[backend->getRank()]).requires_grad_()};
  backend->allreduce(tensors, {})->wait();
  REQUIRE(same(tensors[0], image(reduced(all, Kind::SUM))));
  Tensors one{torch::full({}, 2.0)};
  backend->allreduce(one, {})->wait();
  REQUIRE(one[0].item<double>() == 2.0 * backend->getSize());
}

void check_reduce_scatter(const BackendPtr& backend) {
  const int64_t size = backend->getSize();
  const int64_t rank = backend->getRank();
  const auto all = values_of_all(size, 7 * size);
  for (const auto kind : {Kind::SUM, Kind::AVG, Kind::MAX}) {
    const auto expected = reduced(all, kind).view({size, 7})[rank];
    c10d::ReduceScatterOptions options;
    options.reduceOp = kind;
    auto output = torch::empty({7});
    auto input = all[rank].clone();
    backend->_reduce_scatter_base(output, input, options)->wait();
    REQUIRE(same(output, expected));
    REQUIRE(same(input, all[rank]));
    Tensors outputs{torch::empty({7})};
    std::vector<Tensors> inputs{input.view({size, 7}).unbind()};
    backend->reduce_scatter(outputs, inputs, options)->wait();
    REQUIRE(same(outputs[0], expected));
  }
}

/// Lists whose entries differ in length; rank 0 has nothing.
void check_uneven(const BackendPtr& backend) {
  const int64_t rank = backend->getRank();
  const int64_t size = backend->getSize();
  Tensors all;
  for (int64_t other = 0; other < size; ++other) {
    all.push_back(values_of(other, 5 * other));
  }
  Tensors inputs{all[rank].clone()};
  std::vector<Tensors> outputs{empty_like_all(all)};
  const auto work = backend->allgather(outputs, inputs, {});
  work->wait();
  require_same(outputs[0], all);
  require_same(work->result(), all);
  backend->reduce_scatter(inputs, outputs, {})->wait();
  REQUIRE(same(inputs[0], all[rank] * size));
  auto nothing = torch::empty({0});
  backend->_allgather_base(nothing, nothing, {})->wait();
}

void check_with_root(const BackendPtr& backend, torch::ScalarType dtype) {
  const auto all = values_of_all(backend->getSize(), 20, dtype);
  const int rank = backend->getRank();
  const bool is_root = rank == 1;
  Tensors own{all[rank].clone()};
  std::vector<Tensors> lists;
  if (is_root) {
    lists.push_back(empty_like_all(all));
  }
  c10d::GatherOptions gather;
  gather.rootRank = 1;
  backend->gather(lists, own, gather)->wait();
  c10d::ScatterOptions scatter;
  scatter.rootRank = 1;
  own[0].zero_();
  backend->scatter(own, lists, scatter)->wait();
  REQUIRE(same(own[0], all[rank]));
}

void check_messages(const BackendPtr& backend) {
  const int64_t size = backend->getSize();
  const int64_t rank = backend->getRank();
  const auto next = static_cast<int>((rank + 1) % size);
  const auto last = static_cast<int>((rank + size - 1) % size);
  Tensors sent{values_of(rank, 9)};
  Tensors received{torch::empty({9})};
  const auto work = backend->send(sent, next, 3);
  backend->recv(received, last, 3)->wait();
  work->wait();
  REQUIRE(same(received[0], values_of(last, 9)));
}

void check_bits(const BackendPtr& backend, const ProcessGroup& group) {
  torch::manual_seed(group.rank());
  const auto values = torch::randn({700'000});
  const auto sum = [&] {
    Tensors tensors{values.clone()};
    backend->allreduce(tensors, {})->wait();
    return tensors[0];
  };
  const auto first = sum();
  // Reduced in place within a host that has several ranks.
  Tensors shared{
      backend->supportsTensorAlloc(0)
          ? backend->allocateTensor(values.numel(), values.options())
          : torch::empty_like(values)};
  shared[0].copy_(values);
  backend->allreduce(shared, {})->wait();
  REQUIRE(same(shared[0], first));
  for (const auto& other : group.all_gather(first)) {
    REQUIRE(same(other, first));
  }
  REQUIRE(same(sum(), first));
}

TEST_CASE("reductions give the same for each placement of ranks on hosts") {
  everywhere([](const BackendPtr& backend, const ProcessGroup& group) {
    REQUIRE(backend->getBackendName() == "hierarchical");
    // Several chunks with a short last one; one element; none.
    check_sums(backend, 1'700'001, {Kind::SUM, Kind::AVG});
    check_sums(backend, 1);
    check_sums(backend, 0);
    check_layouts(backend);
    check_reduce_scatter(backend);
    check_sparse_rows(backend);
    check_bits(backend, group);
  });
}

TEST_CASE("so do collectives that move data, in the order of the ranks") {
  everywhere([](const BackendPtr& backend, const ProcessGroup& /*group*/) {
    check_any_dtype(backend);
    check_uneven(backend);
    check_messages(backend);
    for (const auto dtype :
         {torch::kLong, torch::kBool, torch::kShort, torch::kComplexFloat}) {
      INFO(dtype);
      check_with_root(backend, dtype);
      check_all_to_all(backend, dtype, false);
    }
  });
}

TEST_CASE("over several hosts every dtype is reduced that shared memory does") {
  everywhere([](const BackendPtr& backend, const ProcessGroup& /*group*/) {
    check_reductions(backend);
    // Reduce-scatter and reduce, also of dtypes that gloo does not support.
    const int64_t size = backend->getSize();
    const auto rank = backend->getRank();
    for (const auto dtype : {torch::kShort, torch::kComplexFloat}) {
      const auto all = values_of_all(size, 7 * size, dtype);
      const auto product = reduced(all, Kind::PRODUCT);
      c10d::ReduceScatterOptions scatter;
      scatter.reduceOp = Kind::PRODUCT;
      auto output = torch::empty({7}, dtype);
      auto input = all[rank].clone();
      backend->_reduce_scatter_base(output, input, scatter)->wait();
      REQUIRE(torch::equal(output, product.view({size, 7})[rank]));
      Tensors tensors{input};
      c10d::ReduceOptions reduce;
      reduce.reduceOp = Kind::PRODUCT;
      reduce.rootRank = size - 1;
      backend->reduce(tensors, reduce)->wait();
      REQUIRE(torch::equal(tensors[0], rank == size - 1 ? product : all[rank]));
    }
  });
}

TEST_CASE(
    "operations run in the order of the calls, and may be waited for in any") {
  const Hosts hosts{"a", "b", "a", "b"};
  ranks(4, [&](ProcessGroup group) {
    const auto backend = hierarchical_backend(group, hosts);
    const auto rank = group.rank();
    if (rank == 3) { // the others are ahead of it
      group.store()->wait({"waited"});
    }
    auto sum = torch::ones({600'000});
    Tensors tensors{sum};
    std::vector<WorkPtr> works;
    for (int i = 0; i < 5; ++i) {
      works.push_back(backend->allreduce(tensors, {}));
    }
    Tensors whole{torch::full({3}, double(rank))};
    works.push_back(backend->broadcast(whole, {}));
    works.push_back(backend->barrier({}));
    const auto future = works[5]->getFuture();
    if (rank == 0) {
      REQUIRE(!works[0]->isCompleted());
      REQUIRE_THROWS(works[0]->wait(std::chrono::milliseconds(20)));
      group.store()->set("waited", std::string("1"));
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) {
      (*work)->wait();
    }
    REQUIRE(works[0]->isCompleted());
    REQUIRE(works[0]->getSequencenumber() == 1);
    REQUIRE(backend->getSequenceNumberForGroup() == 7);
    REQUIRE(torch::equal(sum, torch::full({600'000}, 1024.0)));
    REQUIRE(
        torch::equal(future->value().toTensorList().get(0), torch::zeros({3})));
  });
}

RANKS_TEST("two backends do not wait for each other", 3) {
  const auto one = hierarchical_backend(group, {"a", "a", "b"}, "one");
  const auto two = hierarchical_backend(group, {"a", "b", "b"}, "two");
  auto values = values_of_all(3, 1000);
  Tensors first{values[group.rank()].clone()};
  Tensors second{values[group.rank()].clone()};
  // Ranks begin with different backends.
  const bool even = group.rank() % 2 == 0;
  const auto a = (even ? one : two)->allreduce(even ? first : second, {});
  const auto b = (even ? two : one)->allreduce(even ? second : first, {});
  (even ? b : a)->wait();
  REQUIRE(same(second[0], reduced(values, Kind::SUM)));
  (even ? a : b)->wait();
  REQUIRE(same(first[0], reduced(values, Kind::SUM)));
}

} // namespace ddp::test::hierarchical_test
