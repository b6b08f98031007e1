#include <tests/support/ranks.h>

#include <ddp/failure/failure_store.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/reducer.h>
#include <ddp/support/plain_memory.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <ifaddrs.h>
#include <net/if.h>

namespace ddp::test::process_group_test {

using std::chrono::seconds;

TEST_CASE("a group of one needs no launcher and changes nothing") {
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  auto group = init_process_group(ProcessGroupOptions().device(torch::kCPU));
  REQUIRE(group.size() == 1);
  REQUIRE(group.rank() == 0);
  auto tensor = torch::arange(3.0);
  group.all_reduce(tensor, ReduceOp::kMean);
  group.broadcast(tensor);
  group.all_reduce_async(tensor).wait();
  group.barrier();
  REQUIRE(tensor.equal(torch::arange(3.0)));
  REQUIRE(group.all_gather(tensor).at(0).equal(tensor));
  REQUIRE(group.broadcast(std::string("x")) == "x");
  group.shutdown();
}

RANKS_TEST("all_reduce adds, averages and finds extremes", {3, 4}) {
  const auto mine = torch::full({2, 3}, 1.0 + group.rank());
  const auto size = static_cast<double>(group.size());
  const double sum = size * (size + 1) / 2;
  const std::map<ReduceOp, double> expected{
      {ReduceOp::kSum, sum},
      {ReduceOp::kMean, sum / size},
      {ReduceOp::kMin, 1.0},
      {ReduceOp::kMax, size}};
  for (const auto& [op, value] : expected) {
    auto tensor = mine.clone();
    group.all_reduce(tensor, op);
    REQUIRE(tensor.eq(value).all().item<bool>());
  }
  auto transposed = mine.clone().t();
  group.all_reduce(transposed);
  REQUIRE(transposed.eq(sum).all().item<bool>());
  auto scalar = torch::tensor(group.rank());
  group.all_reduce(scalar);
  REQUIRE(scalar.item<int64_t>() == size * (size - 1) / 2);
  REQUIRE_THROWS_AS(group.all_reduce(scalar, ReduceOp::kMean), c10::ValueError);
  auto later = mine.clone();
  auto work = group.all_reduce_async(later);
  work.wait();
  REQUIRE(later.eq(sum).all().item<bool>());
}

RANKS_TEST("all_gather takes uneven tensors, scalars and strings") {
  const auto rank = group.rank(); // rank 0's tensor is empty
  const auto gathered = group.all_gather(torch::full({rank, 2}, rank));
  for (int64_t r = 0; r < 3; ++r) {
    REQUIRE(gathered[r].equal(torch::full({r, 2}, r)));
  }
  const auto scalars = group.all_gather(torch::tensor(10.0 * rank));
  REQUIRE(scalars[2].dim() == 0);
  REQUIRE(scalars[2].item<double>() == 20.0);
  const auto texts = group.all_gather(std::string(rank, 'x'));
  REQUIRE(texts == std::vector<std::string>{"", "x", "xx"});
  for (const auto& other :
       {torch::zeros({2, 3}), torch::zeros({2, 2}, torch::kDouble)}) {
    const auto wrong = rank == 1 ? other : torch::zeros({2, 2});
    REQUIRE_THROWS_WITH(
        group.all_gather(wrong), Has("dtype or trailing sizes"));
  }
}

RANKS_TEST(
    "all dtypes are broadcast and gathered",
    3,
    ProcessGroupOptions().backend("gloo")) {
  for (const auto dtype :
       {at::kBool,
        at::kShort,
        at::kUInt16,
        at::kUInt64,
        at::kFloat8_e4m3fn,
        at::kBFloat16,
        at::kComplexHalf,
        at::kComplexDouble}) {
    const auto bytes_of = [&](const at::Tensor& tensor) {
      return detail::as_bytes(tensor.to(dtype));
    };
    const auto own = torch::full({2, 2}, group.rank()).to(dtype);
    const auto gathered = group.all_gather(own);
    for (int64_t r = 0; r < group.size(); ++r) {
      REQUIRE(bytes_of(gathered[r]).equal(bytes_of(torch::full({2, 2}, r))));
      REQUIRE(!gathered[r].is_view());
    }
    group.broadcast(own, 2);
    REQUIRE(bytes_of(own).equal(bytes_of(torch::full({2, 2}, 2))));
  }
}

RANKS_TEST("collectives take tensors with gaps, in inference mode too") {
  const auto rank = group.rank();
  const auto values = [](int64_t r) { return torch::arange(24) + 100 * r; };
  const std::vector<std::function<torch::Tensor(const torch::Tensor&)>> views{
      [](const auto& all) {
        return all.view({4, 6}).t();
      },
      [](const auto& all) { return all.slice(0, 1, 24, 5); },
      [](const auto& all) {
        return all.view({2, 3, 4}).select(2, 1);
      }};
  for (const bool inference : {false, true}) {
    const c10::InferenceMode guard(inference);
    for (const auto& view : views) {
      const auto gathered = group.all_gather(view(values(rank)));
      for (int64_t r = 0; r < 3; ++r) {
        REQUIRE(gathered[r].equal(view(values(r))));
      }
      auto sum = view(values(rank));
      group.all_reduce(sum);
      REQUIRE(sum.equal(view(3 * torch::arange(24) + 300)));
      auto sent = view(values(rank));
      group.broadcast(sent, 1);
      REQUIRE(sent.equal(view(values(1))));
    }
  }
}

RANKS_TEST("broadcast sends tensors and strings from any root") {
  auto tensor = torch::full({5}, group.rank());
  group.broadcast(tensor, 2);
  REQUIRE(tensor.eq(2).all().item<bool>());
  const auto text = group.broadcast(
      group.rank() == 1 ? std::string("a\0b", 3) : "ignored", 1);
  REQUIRE(text == std::string("a\0b", 3));
  REQUIRE(group.broadcast(std::string(), 0).empty());
  REQUIRE_THROWS_AS(group.broadcast(tensor, 3), c10::ValueError);
}

RANKS_TEST("a duplicate's collectives do not mix with the original's") {
  const auto other = group.duplicate();
  auto first = torch::ones({1});
  auto second = torch::full({1}, 10.0);
  // Rank 0 starts them in another order: a shared communicator would mix them
  // up.
  Work a, b;
  if (group.rank() == 0) {
    a = group.all_reduce_async(first);
    b = other.all_reduce_async(second);
  } else {
    b = other.all_reduce_async(second);
    a = group.all_reduce_async(first);
  }
  a.wait();
  b.wait();
  REQUIRE(first.item<double>() == 3);
  REQUIRE(second.item<double>() == 30);
}

RANKS_TEST("a hundred duplicates of a group are used at once") {
  std::vector<ProcessGroup> groups;
  std::vector<torch::Tensor> sums;
  std::vector<Work> works;
  for (int i = 0; i < 100; ++i) {
    groups.push_back(group.duplicate());
    sums.push_back(torch::full({3}, group.rank() + i));
    works.push_back(groups.back().all_reduce_async(sums.back()));
  }
  for (int i = 99; i >= 0; --i) {
    works[i].wait();
    REQUIRE(sums[i].eq(3 + 3 * i).all().item<bool>());
  }
}

RANKS_TEST("a group that the program has already is used") {
  REQUIRE(group.local_rank() == group.rank()); // derived, not given
  REQUIRE(group.local_size() == 3);
  const auto handed = ProcessGroup::from_c10d(group.c10d());
  REQUIRE(handed.rank() == group.rank());
  REQUIRE(handed.local_size() == 3);
  auto tensor = torch::ones({1});
  handed.all_reduce(tensor);
  REQUIRE(tensor.item<double>() == 3);
}

RANKS_TEST(
    "a group without a backend for CPU tensors is refused, with advice") {
  const auto lone = c10::make_intrusive<c10d::ProcessGroup>(
      group.store(),
      static_cast<int>(group.rank()),
      static_cast<int>(group.size()));
  lone->setBackend(
      torch::kCUDA,
      c10d::ProcessGroup::BackendType::CUSTOM,
      group.c10d()->getBackend(torch::kCPU));
  REQUIRE_THROWS_AS(ProcessGroup::from_c10d(lone), c10::ValueError);
  REQUIRE_THROWS_WITH(
      ProcessGroup::from_c10d(lone, c10::Device(torch::kCUDA, 0)),
      Has("from_c10d: the group has no backend for CPU tensors",
          "init_process_group(\"cpu:gloo,cuda:nccl\")"));
}

TEST_CASE("ranks may leave in any order, the store's host first") {
  for (int round = 0; round < 3; ++round) {
    ranks(4, [] {
      auto group = init_process_group();
      if (group.rank() != 0) { // until rank 0 has exited
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
      }
    });
  }
}

/// A store that is slow to answer.
class SlowStore : public c10d::PrefixStore {
 public:
  using c10d::PrefixStore::PrefixStore;

  std::vector<uint8_t> get(const std::string& key) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return c10d::PrefixStore::get(key);
  }
};

RANKS_TEST("rank 0 does not leave before all have read its store") {
  detail::ProcessGroupImpl second;
  second.rank = group.rank();
  second.size = group.size();
  second.timeout = std::chrono::seconds(20);
  second.address = "127.0.0.1";
  second.store = group.store();
  if (group.rank() == 2) {
    second.store = c10::make_intrusive<SlowStore>("second", group.store());
  } else {
    second.store =
        c10::make_intrusive<c10d::PrefixStore>("second", group.store());
  }
  detail::connect(second);
  if (group.rank() == 0) {
    _exit(0); // the store ends as well
  }
}

RANKS_TEST("shutdown ends the group in all copies") {
  auto copy = group;
  group.shutdown();
  group.shutdown();
  auto tensor = torch::ones({1});
  REQUIRE_THROWS_WITH(copy.all_reduce(tensor), Has("was shut down"));
}

// Returns once every other rank has reported that it waits in its next
// collective.
void wait_for_the_others(const ProcessGroup& group) {
  const auto& impl = detail::ProcessGroupImpl::of(group);
  const auto waits = [](const auto& rank) {
    return rank.came && !rank.call.empty();
  };
  for (int64_t waiting = 0; waiting < group.size() - 1;) {
    const auto ranks =
        impl.failure_store->wait_status(impl.scope, impl.launched + 1);
    waiting = std::count_if(ranks.begin(), ranks.end(), waits);
  }
}

TEST_CASE("a peer that dies makes the others fail at once, by name") {
  const auto outcomes = ranks(3, RankOptions().exit_codes({{1, 137}}), [] {
    auto group = init_process_group();
    if (group.rank() == 1) {
      wait_for_the_others(group);
      raise(SIGKILL);
    }
    auto tensor = torch::ones({1 << 20});
    REQUIRE_THROWS_WITH(
        [&] {
          for (int i = 0; i < 3; ++i) {
            group.all_reduce(tensor);
          }
        }(),
        Has("all_reduce over " + group.backend() + " failed: ",
            "; ranks 0 and 2 wait in all_reduce of",
            "; rank 1 has not reached"));
  });
  for (const auto& outcome : outcomes) {
    REQUIRE(outcome.seconds.count() < 20);
  }
}

TEST_CASE("a barrier is not taken for another rank's all_reduce") {
  for (const char* backend : {"gloo", "shm"}) {
    ranks(3, [backend] {
      auto group = init_process_group(
          ProcessGroupOptions().backend(backend).timeout(seconds(4)));
      const auto call = [&] {
        group.rank() == 1 ? (void)group.all_reduce(torch::ones({1}))
                          : group.barrier();
      };
      REQUIRE_THROWS_AS(call(), c10::DistBackendError);
    });
  }
}

RANKS_TEST(
    "a group that was handed over keeps its timeout, or gets the default",
    2,
    ProcessGroupOptions().backend("gloo").timeout(seconds(7))) {
  const auto hand_over = [&] {
    return ProcessGroup::from_c10d(group.c10d(), torch::kCPU);
  };
  auto& timeout =
      group.c10d()->getBackend(torch::kCPU)->getBackendOptions()->timeout;
  REQUIRE(hand_over().timeout() == seconds(7));
  timeout = c10d::Store::kNoTimeout;
  REQUIRE(hand_over().timeout() == ProcessGroup().timeout());
  timeout = std::chrono::milliseconds::max(); // the longest
  const auto handed = hand_over();
  const auto now = std::chrono::steady_clock::now();
  REQUIRE(now + handed.timeout() > now); // no overflow
  if (group.rank() == 0) { // so that the others wait in slices
    std::this_thread::sleep_for(seconds(1));
  }
  auto tensor = torch::ones({1});
  handed.all_reduce(tensor);
  REQUIRE(tensor.item<double>() == 2);
}

TEST_CASE("the longest of timeouts is long") {
  for (const std::string backend : {"gloo", "shm"}) {
    ranks(2, [&] {
      const auto group =
          init_process_group(ProcessGroupOptions().backend(backend).timeout(
              std::chrono::milliseconds::max()));
      auto parameter = torch::ones({3}, torch::requires_grad());
      Reducer reducer({parameter}, group);
      if (group.rank() == 0) { // so that the other waits in slices
        std::this_thread::sleep_for(seconds(1));
      }
      parameter.sum().backward();
      group.duplicate().barrier();
      REQUIRE(parameter.grad().equal(torch::ones({3})));
    });
  }
}

/// The names of the interfaces that are up, each with an IPv4 address.
std::set<std::string> interfaces() {
  std::set<std::string> names;
  ifaddrs* first = nullptr;
  REQUIRE(getifaddrs(&first) == 0);
  for (const auto* entry = first; entry; entry = entry->ifa_next) {
    if (entry->ifa_addr && entry->ifa_addr->sa_family == AF_INET &&
        (entry->ifa_flags & IFF_UP)) {
      names.insert(entry->ifa_name);
    }
  }
  freeifaddrs(first);
  return names;
}

std::string gloo_device(const ProcessGroup& group) {
  const auto backend = group.c10d()->getBackend(torch::kCPU);
  auto& gloo = dynamic_cast<c10d::ProcessGroupGloo&>(*backend);
  return gloo.getOptions()->devices.at(0)->str();
}

STARTED_TEST(
    "each group talks over its own interface, and so do its children",
    2) {
  for (const auto& name : interfaces()) {
    const auto group = init_process_group(
        ProcessGroupOptions().backend("gloo").interface(name));
    REQUIRE_THAT(gloo_device(group), Has("iface=" + name + ","));
    REQUIRE_THAT(gloo_device(group.duplicate()), Has("iface=" + name + ","));
    group.barrier();
  }
  REQUIRE(!std::getenv("GLOO_SOCKET_IFNAME"));
}

} // namespace ddp::test::process_group_test
