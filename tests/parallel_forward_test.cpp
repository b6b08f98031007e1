#include <tests/support/failures.h>
#include <tests/support/fake_gpu.h>
#include <tests/support/mpi_backend.h>
#include <tests/support/nets.h>
#include <tests/support/values.h>

#include <ddp/ddp.h>

namespace ddp::test::parallel_forward_test {

using torch::Tensor;

/// Integers, whose sums have the same bits in any order.
Tensor whole_numbers(at::IntArrayRef sizes) {
  return torch::randint(-4, 5, sizes).to(torch::kFloat);
}

struct CountingNet : LayeredNet {
  torch::nn::Linear first = linear("first", 32, 8);
  torch::nn::Linear second = linear("second", 8, 64);
  std::vector<int64_t> seen; // rows, forward by forward

  CountingNet() {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) {
      parameter.copy_(whole_numbers(parameter.sizes()));
    }
  }
  Tensor forward(const Tensor& x) {
    seen.push_back(x.size(0));
    return second(torch::relu(first(x)));
  }
};

/// Needs its input on a device.
struct PlacedNet : torch::nn::Module {
  explicit PlacedNet(torch::Device device) {
    register_parameter("weight", torch::ones({2}, device));
  }
  Tensor forward(const Tensor& x) {
    return x;
  }
};

std::shared_ptr<CountingNet> make_net() {
  torch::manual_seed(3);
  return std::make_shared<CountingNet>();
}

/// The argument of a rank other than the root: undefined, or a tensor to
/// ignore.
Tensor ignored(int64_t rank) {
  return rank % 2 ? torch::ones({9, 9}, torch::kInt) : Tensor();
}

/// Every batch of 0 to 7 rows, from and to every kind of rank.
void check_batches(const ProcessGroup& group) {
  const auto net = make_net();
  const auto rank = group.rank();
  for (int64_t rows = 0; rows <= 7; ++rows) {
    const auto batch = whole_numbers({rows, 32});
    const auto expected = net->forward(batch);
    const auto shares = batch.tensor_split(group.size());
    for (const int64_t root : {int64_t{0}, group.size() - 1}) {
      for (const int64_t destination : {int64_t{0}, int64_t{1}, kAllRanks}) {
        CAPTURE(rows, root, destination);
        const auto input = rank == root ? batch : ignored(rank);
        net->seen.clear();
        const auto output = parallel_forward(
            net,
            input,
            group,
            ParallelForwardOptions().root(root).destination(destination));
        const bool gets = destination == kAllRanks || destination == rank;
        REQUIRE(output.defined() == gets);
        REQUIRE((!gets || same(output, expected)));
        REQUIRE_FALSE((gets && output.requires_grad()));
        REQUIRE(torch::GradMode::is_enabled());
        const auto own_rows = shares[rank].size(0);
        const bool runs = own_rows > 0 || rank == 0;
        REQUIRE(net->seen == std::vector<int64_t>(runs ? 1 : 0, own_rows));

        const auto share = scatter(input, group, root);
        REQUIRE(same(share, shares[rank]));
        const auto joined = gather(share, group, destination);
        REQUIRE(joined.defined() == gets);
        REQUIRE((!gets || same(joined, batch)));
      }
    }
  }
}

/// Fails on some ranks.
Tensor fail(const Tensor& share, const ProcessGroup& group) {
  if (group.rank() == 1) {
    throw std::runtime_error("boom \"quoted\"\nand more");
  }
  if (group.rank() == 2) {
    TORCH_CHECK(false, "bang");
  }
  return share;
}

std::string forward_error(
    const ProcessGroup& group,
    const std::function<Tensor(const Tensor&)>& forward,
    int64_t rows) {
  std::string error;
  try {
    parallel_forward(forward, torch::ones({rows, 2}), group);
  } catch (const c10::ValueError&) {
    FAIL("it was not the caller's mistake");
  } catch (const c10::Error& thrown) {
    error = thrown.what_without_backtrace();
  }
  for (const auto& other : group.all_gather(error)) {
    REQUIRE(other == error);
  }
  return error;
}

RANKS_TEST("batches of any length are split, forwarded and joined", {2, 3, 4}) {
  check_batches(group);
}

MPI_TEST("batches are split, forwarded and joined over MPI") {
  const auto group = mpi_group();
  REQUIRE(group.backend() == "mpi");
  check_batches(group);
  REQUIRE_THAT(
      forward_error(
          group, [&](const Tensor& share) { return fail(share, group); }, 3),
      Has("rank 2: forward threw: bang"));
  check_usable(group);
}

TEST_CASE("a group of one forwards the batch as it is") {
  const ProcessGroup group;
  const auto net = make_net();
  for (const int64_t rows : {0, 3}) {
    const auto batch = whole_numbers({rows, 32});
    const auto all = ParallelForwardOptions().destination(kAllRanks);
    REQUIRE(same(parallel_forward(net, batch, group), net->forward(batch)));
    REQUIRE(
        same(parallel_forward(net, batch, group, all), net->forward(batch)));
  }
}

RANKS_TEST("any module and anything that can be called is run") {
  torch::manual_seed(3);
  const auto batch = torch::rand({1, 4}); // two ranks have no row
  const auto same_on_all = [&](auto&& net, const Tensor& expected) {
    const auto options = ParallelForwardOptions().destination(kAllRanks);
    const auto output = parallel_forward(net, batch, group, options);
    REQUIRE(nearly_equal(output, expected));
  };
  const torch::nn::Linear holder(4, 2);
  const auto expected = holder.ptr()->forward(batch).detach();
  same_on_all(holder, expected);
  same_on_all(holder.ptr(), expected);
  same_on_all(*holder.ptr(), expected);
  torch::nn::Sequential sequential(torch::nn::Linear(holder.ptr()));
  same_on_all(sequential, expected);
  same_on_all(torch::nn::AnyModule(holder.ptr()), expected);
  same_on_all(static_cast<Tensor (*)(const Tensor&)>(torch::exp), batch.exp());
  const auto without_gradients = [](Tensor x) {
    REQUIRE_FALSE(torch::GradMode::is_enabled());
    return x + 1;
  };
  same_on_all(without_gradients, batch + 1);

  // The wrapper's first own forward broadcasts rank 0's buffers, and all ranks
  // must take part.
  torch::nn::BatchNorm1d norm(4);
  norm->eval();
  const auto normal = norm->forward(batch).detach();
  DistributedDataParallel<torch::nn::BatchNorm1d> wrapper(norm, group);
  same_on_all(wrapper, normal);
  same_on_all(*wrapper, normal);
  norm->running_mean.fill_(group.rank());
  wrapper->forward(batch);
  REQUIRE(norm->running_mean.equal(torch::zeros({4})));
}

RANKS_TEST("a forward that throws on some ranks is an error on all, at once") {
  const auto start = Clock::now();
  const auto fails = [&](const Tensor& share) { return fail(share, group); };
  REQUIRE(
      forward_error(group, fails, 3) ==
      "parallel_forward from rank 0 to rank 0 failed: rank 1: forward threw: "
      "boom \"quoted\"\nand more; rank 2: forward threw: bang");
  check_usable(group);
  REQUIRE_THAT(forward_error(group, fails, 2), !Has("rank 2"));
  REQUIRE(forward_error(group, fails, 1).empty()); // two ranks do not run
  const auto returns_nothing = [&](const Tensor& share) {
    return group.rank() == 1 ? Tensor() : share;
  };
  REQUIRE_THAT(
      forward_error(group, returns_nothing, 3),
      Has("rank 1: forward returned an undefined tensor"));
  const auto throws_number = [](const Tensor&) -> Tensor { throw 1; };
  REQUIRE_THAT(
      forward_error(group, throws_number, 2),
      Has("ranks 0 and 1: forward threw an exception that is not a "
          "std::exception"));
  check_usable(group);
  REQUIRE(seconds_since(start) < 10);
}

RANKS_TEST("what cannot be forwarded is the same error on all ranks") {
  const auto net = make_net();
  const auto options = ParallelForwardOptions().root(1);
  const auto error = [&](auto&& run, const Tensor& input, const auto& how) {
    return error_on_all(
        group, [&] { parallel_forward(run, input, group, how); });
  };
  const std::string from_1 = "parallel_forward from rank 1 to rank 1 failed: ";
  const auto elsewhere = torch::ones({3, 32}, torch::kMeta);
  auto stays = options;
  stays.move_input(false);
  REQUIRE(
      error(net, elsewhere, stays) ==
      from_1 +
          "rank 1: the input is on meta, but the module and the group are on "
          "cpu: pass input.to(group.device()), or keep move_input enabled");
  const auto identity = [](const Tensor& x) { return x; };
  REQUIRE_THAT(
      error(identity, elsewhere, stays),
      Has("is on meta, but the group's device is cpu: pass"));
  REQUIRE(error(net, torch::ones({3, 32}), stays).empty());
  REQUIRE_THAT(
      error(net, elsewhere, options),
      Has(from_1 + "rank 1: the input cannot be sent from "));
  REQUIRE_THAT(
      error(net, Tensor(), options),
      Has(from_1 + "rank 1: the input is an undefined tensor"));
  const auto sum = [](const Tensor& x) { return x.sum(); };
  REQUIRE_THAT(
      error(sum, torch::ones({2}), options),
      Has(from_1 +
          "ranks 0 and 1: the output has "
          "shape []"));
  auto nowhere = options;
  nowhere.destination(7);
  net->seen.clear();
  REQUIRE_THAT(
      error(net, torch::ones({3, 32}), nowhere),
      Has("ranks 0-2: rank 7 does not exist in a group of 3"));
  REQUIRE(net->seen.empty());

  const auto device = group.rank() == 2 ? torch::kMeta : torch::kCPU;
  REQUIRE(
      error(PlacedNet(device), torch::ones({3, 32}), options) ==
      from_1 +
          "rank 2: the module is on meta, but each share goes to "
          "the group's device, cpu: call net->to(group.device()) first");
  check_usable(group);
}

FAKE_GPU_TEST("an input elsewhere is moved, or an error, by option") {
  const auto net = make_net();
  const auto batch = whole_numbers({5, 32});
  const auto expected = net->forward(batch).detach();
  net->to(fake_gpu::kDevice);
  auto options = ParallelForwardOptions().destination(kAllRanks);
  const auto output = parallel_forward(net, batch, gpu_group, options);
  REQUIRE(output.device() == fake_gpu::kDevice);
  REQUIRE(same(fake_gpu::on_cpu(output), expected));
  REQUIRE(scatter(batch, gpu_group).device() == fake_gpu::kDevice);
  REQUIRE(gather(batch, gpu_group, kAllRanks).device() == fake_gpu::kDevice);

  options.move_input(false);
  REQUIRE_THAT(
      error_on_all(
          group, [&] { parallel_forward(net, batch, gpu_group, options); }),
      Has("the input is on cpu, but the module and the group"));
  const auto moved =
      parallel_forward(net, batch.to(fake_gpu::kDevice), gpu_group, options);
  REQUIRE(same(fake_gpu::on_cpu(moved), expected));
}

} // namespace ddp::test::parallel_forward_test
