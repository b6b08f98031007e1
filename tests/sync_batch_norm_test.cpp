#include <tests/support/batch_norm.h>
#include <tests/support/ranks.h>

#include <ddp/ddp.h>

namespace ddp::test::sync_batch_norm_test {

using torch::nn::BatchNormOptions;
using Rows = std::vector<int64_t>;

struct Case {
  Rows shape{6, 2, 3}; ///< of a row
  BatchNormOptions options = BatchNormOptions(6);
  torch::ScalarType dtype = torch::kDouble; ///< of the input
  torch::ScalarType module_dtype = torch::kDouble;
  double tolerance = 1e-9;
  torch::MemoryFormat format = torch::MemoryFormat::Contiguous;
  Rows rows = {}; ///< of each rank; empty: uneven
};

/// Output and input gradient of a part of the batch.
std::pair<torch::Tensor, torch::Tensor> run(
    const std::function<torch::Tensor(const torch::Tensor&)>& forward,
    torch::Tensor input,
    const torch::Tensor& weights) {
  input.requires_grad_();
  const auto output = forward(input);
  (output * weights + output.square()).sum().backward();
  return {output.detach(), input.grad()};
}

/// Trains `synced` on this rank's rows and `plain` on all rows.
template <typename Synced, typename Plain>
void compare(const ProcessGroup& group, const Case& with) {
  const auto rows = with.rows.empty() ? uneven_rows(group) : with.rows;
  Synced synced(with.options, group);
  Plain plain(with.options);
  torch::NoGradGuard no_grad;
  for (auto& parameter : plain->parameters()) {
    torch::manual_seed(1);
    parameter.uniform_(0.5, 2);
  }
  for (const auto& parameter : plain->named_parameters()) {
    synced->named_parameters()[parameter.key()].copy_(parameter.value());
  }
  synced->to(with.module_dtype);
  plain->to(with.module_dtype);
  const auto close = [&](const torch::Tensor& actual,
                         const torch::Tensor& expected) {
    require_close(actual, expected, with.tolerance);
  };
  for (int64_t step = 0; step < 3; ++step) {
    torch::AutoGradMode grad(true);
    auto whole = whole_batch(step, sum_of(rows), with.shape).to(with.dtype);
    if (with.format != torch::MemoryFormat::Contiguous) {
      whole = whole.contiguous(with.format);
    }
    const auto weights = torch::randn_like(whole);
    const auto part = part_of(whole, rows, group).detach().clone();
    synced->zero_grad();
    plain->zero_grad();
    const auto [output, gradient] =
        run([&](const auto& x) { return synced(x); },
            part,
            part_of(weights, rows, group));
    const auto [all_output, all_gradient] =
        run([&](const auto& x) { return plain(x); },
            whole.detach().clone(),
            weights);
    close(output, part_of(all_output, rows, group));
    close(gradient, part_of(all_gradient, rows, group));
    for (const auto& parameter : synced->named_parameters()) {
      auto sum = parameter.value().grad().clone();
      group.all_reduce(sum);
      close(sum, plain->named_parameters()[parameter.key()].grad());
    }
    for (const auto& buffer : synced->named_buffers()) {
      require_close( // in single precision where the input is in half
          buffer.value(),
          plain->named_buffers()[buffer.key()],
          std::min(with.tolerance, 1e-4));
    }
  }
  // In evaluation no rank waits for another.
  synced->eval();
  plain->eval();
  if (group.rank() == 0 && with.options.track_running_stats()) {
    const auto input = whole_batch(9, 4, with.shape).to(with.dtype);
    close(synced(input), plain(input));
  }
}

template <int D>
void compare(const ProcessGroup& group, const Case& with) {
  using namespace torch::nn;
  if constexpr (D == 1) {
    compare<SyncBatchNorm1d, BatchNorm1d>(group, with);
  } else if constexpr (D == 2) {
    compare<SyncBatchNorm2d, BatchNorm2d>(group, with);
  } else {
    compare<SyncBatchNorm3d, BatchNorm3d>(group, with);
  }
}

Case with(const std::function<void(Case&)>& change) {
  Case result;
  change(result);
  return result;
}

struct Net : torch::nn::Module {
  torch::nn::Conv2d conv{nullptr};
  SyncBatchNorm2d norm{nullptr};
  torch::nn::Linear last{nullptr};

  explicit Net(const ProcessGroup& group) {
    torch::manual_seed(3);
    conv = register_module("conv", torch::nn::Conv2d(2, 4, 3));
    norm = register_module("norm", SyncBatchNorm2d(BatchNormOptions(4), group));
    last = register_module("last", torch::nn::Linear(16, 2));
    to(torch::kDouble);
  }
  torch::Tensor forward(torch::Tensor x) {
    return last(torch::relu(norm(conv(x))).flatten(1));
  }
};

RANKS_TEST("a synchronised batch-norm is that of one process", 4) {
  compare<1>(group, with([](Case& c) { c.shape = {6}; }));
  compare<1>(group, with([](Case& c) { c.shape = {6, 4}; }));
  compare<2>(group, {});
  compare<3>(group, with([](Case& c) { c.shape = {6, 2, 1, 3}; }));
}

RANKS_TEST("a synchronised batch-norm has the options of batch-norm") {
  compare<2>(group, with([](Case& c) { c.options.affine(false); }));
  compare<2>(group, with([](Case& c) { c.options.momentum(std::nullopt); }));
  compare<2>(group, with([](Case& c) {
               c.options.track_running_stats(false).eps(0.1);
             }));
  compare<1>(group, with([](Case& c) {
               c.shape = {6};
               c.options.affine(false).track_running_stats(false);
             }));
}

RANKS_TEST("synchronised batch-norm of other dtypes and layouts", 4) {
  compare<2>(group, with([](Case& c) {
               c.format = torch::MemoryFormat::ChannelsLast;
             }));
  compare<3>(group, with([](Case& c) {
               c.shape = {6, 2, 2, 3};
               c.format = torch::MemoryFormat::ChannelsLast3d;
             }));
  compare<2>(group, with([](Case& c) {
               c.dtype = c.module_dtype = torch::kFloat;
               c.tolerance = 1e-4;
             }));
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    compare<2>(group, with([&](Case& c) {
                 c.dtype = dtype;
                 c.module_dtype = torch::kFloat;
                 c.tolerance = dtype == torch::kHalf ? 1e-2 : 6e-2;
               }));
  }
}

RANKS_TEST("a rank's one value is normalised with those of the others") {
  compare<1>(group, with([&](Case& c) {
               c.shape = {6};
               c.rows = Rows(group.size(), 1);
             }));
}

RANKS_TEST("statistics stay as they are where all batches are empty") {
  SyncBatchNorm1d norm(BatchNormOptions(2), group);
  const auto output = norm(torch::empty({0, 2}).requires_grad_());
  REQUIRE(output.sizes() == at::IntArrayRef({0, 2}));
  output.sum().backward();
  REQUIRE(norm->running_mean.equal(torch::zeros({2})));
  REQUIRE(norm->running_var.equal(torch::ones({2})));
  REQUIRE(norm->weight.grad().equal(torch::zeros({2})));
}

RANKS_TEST("a mean far from zero costs no digits of the variance") {
  const auto options = BatchNormOptions(1).momentum(1);
  SyncBatchNorm1d norm(options, group);
  norm->to(torch::kDouble);
  const auto whole = torch::arange(-1, 5, torch::kDouble) + 1e8;
  norm(whole.view({3, 2, 1})[group.rank()]);
  require_close(norm->running_var, torch::tensor({3.5}, torch::kDouble));
}

RANKS_TEST("a net with synchronised batch-norm in the wrapper", 4) {
  auto net = std::make_shared<Net>(group);
  DistributedDataParallel<Net> model(net, group);
  const auto rows = uneven_rows(group);
  Net alone{ProcessGroup()};
  for (int64_t step = 0; step < 3; ++step) {
    const auto whole = whole_batch(step, sum_of(rows), {2, 4, 4});
    net->zero_grad();
    alone.zero_grad();
    model->forward(part_of(whole, rows, group)).square().sum().backward();
    alone.forward(whole).square().sum().backward();
    require_trained_alike(group, *net, alone);
  }
}

RANKS_TEST("a second derivative of a synchronised batch-norm is refused", 2) {
  SyncBatchNorm1d norm(BatchNormOptions(2), group);
  auto input = torch::randn({3, 2}, torch::requires_grad());
  const auto loss = norm(input).square().sum();
  REQUIRE_THROWS_WITH(
      torch::autograd::grad({loss}, {input}, {}, true, true),
      Has("create_graph"));
}

TEST_CASE("a synchronised batch-norm refuses inputs that do not fit") {
  SyncBatchNorm2d norm(2, ProcessGroup());
  CHECK_THROWS_WITH(norm(torch::ones({2, 2})), Has("4 dimensions"));
  CHECK_THROWS_WITH(norm(torch::ones({2, 3, 1, 1})), Has("num_features"));
}

FOLDER_TEST("checkpoints fit batch-norm and its synchronised kin") {
  SyncBatchNorm1d synced(3, ProcessGroup());
  torch::nn::BatchNorm1d plain(3);
  synced(torch::randn({5, 3}));
  for (const std::string name : {"norm.pt", "norm.safetensors"}) {
    const auto path = folder.path() + "/" + name;
    save_checkpoint(path, *synced, ProcessGroup());
    load_checkpoint(path, *plain, ProcessGroup());
    CHECK(plain->running_var.equal(synced->running_var));
    CHECK(plain->num_batches_tracked.item<int64_t>() == 1);
    save_checkpoint(path, *plain, ProcessGroup());
    load_checkpoint(path, *synced, ProcessGroup());
  }
  std::ostringstream text;
  text << synced;
  CHECK_THAT(text.str(), Has("SyncBatchNorm1d(3, eps=1e-05"));
}

RANKS_TEST("a clone of a synchronised batch-norm is synchronised") {
  SyncBatchNorm1d norm(BatchNormOptions(1).momentum(1), group);
  const auto copy =
      std::dynamic_pointer_cast<SyncBatchNorm1dImpl>(norm->clone());
  copy->forward(torch::full({2, 1}, 1. * group.rank()));
  REQUIRE(copy->running_mean.item<float>() == 1);
}

} // namespace ddp::test::sync_batch_norm_test
