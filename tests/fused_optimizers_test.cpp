#include <tests/support/launched.h>
#include <tests/support/optimizers.h>

#include <ddp/ddp.h>

namespace ddp::test::fused_optimizers_test {

using torch::optim::AdamOptions;
using torch::optim::Optimizer;
using torch::optim::SGDOptions;

constexpr int kSteps = 6;

using Parameters = std::vector<at::Tensor>;

Parameters make_parameters() {
  torch::manual_seed(1);
  Parameters parameters;
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    for (const auto& shape :
         std::vector<std::vector<int64_t>>{{37, 5}, {}, {1031}}) {
      parameters.push_back(torch::randn(shape, dtype).requires_grad_());
    }
  }
  return parameters;
}

at::Tensor gradient_for(const at::Tensor& parameter, int64_t step) {
  torch::manual_seed(100 + step);
  return torch::randn(parameter.sizes(), parameter.scalar_type());
}

/// The gradient of parameter `late` starts a step later than the others.
Parameters trained(const MakeOptimizer& make, size_t late = 2) {
  auto parameters = make_parameters();
  const auto optimizer = make(parameters);
  for (int step = 0; step < kSteps; ++step) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      auto& gradient = parameters[i].mutable_grad();
      gradient.reset();
      if (i != late || step != 0) {
        gradient = gradient_for(parameters[i], step);
      }
    }
    optimizer->step();
  }
  return parameters;
}

TEST_CASE("fused optimizers compute what LibTorch's do") {
  for (const auto& kind : fused_kinds()) {
    INFO(kind.python);
    const auto fused = trained(kind.fused);
    const auto plain = trained(kind.plain);
    for (size_t i = 0; i < fused.size(); ++i) {
      CHECK(torch::allclose(fused[i], plain[i], 1e-5, 1e-6));
      CHECK(!fused[i].equal(make_parameters()[i]));
    }
  }
}

FOLDER_TEST("fused optimizers compute what Python's do, to the last bit") {
  std::vector<std::pair<std::string, at::Tensor>> start;
  const auto parameters = make_parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    start.emplace_back("p" + std::to_string(i), parameters[i].detach());
    for (int step = 0; step < kSteps; ++step) {
      start.emplace_back(
          "g" + std::to_string(i) + "_" + std::to_string(step),
          gradient_for(parameters[i], step));
    }
  }
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  for (const auto& [name, tensor] : start) {
    dict.insert(name, tensor);
  }
  write_checkpoint_file(folder / "start.pt", dict);
  const std::string script =
      "import sys, torch\n"
      "folder = sys.argv[1]\n"
      "start = torch.load(folder + '/start.pt')\n"
      "for number, call in enumerate(sys.argv[2:]):\n"
      "    p = [start[f'p{i}'].clone().requires_grad_() for i in range(6)]\n"
      "    optimizer = eval('torch.optim.' + call)\n"
      "    for step in range(6):\n"
      "        for i in range(6):\n"
      "            p[i].grad = start[f'g{i}_{step}'].clone()\n"
      "        optimizer.step()\n"
      "    torch.save({f'p{i}': p[i].detach() for i in range(6)},\n"
      "               f'{folder}/{number}.pt')\n";
  Words arguments{"-c", script, folder.path()};
  for (const auto& kind : fused_kinds()) {
    arguments.push_back(kind.python);
  }
  python_output(arguments);
  for (size_t number = 0; number < fused_kinds().size(); ++number) {
    INFO(fused_kinds()[number].python);
    constexpr size_t kNone = 6; // Python's reject late gradients
    const auto ours = trained(fused_kinds()[number].fused, kNone);
    const auto theirs =
        read_checkpoint_file(folder / (std::to_string(number) + ".pt"))
            .toGenericDict();
    for (size_t i = 0; i < ours.size(); ++i) {
      CHECK(ours[i].equal(theirs.at("p" + std::to_string(i)).toTensor()));
    }
  }
}

FOLDER_TEST("Adam and AdamW compute what Python's do after many steps") {
  // In step 1270, the bias correction's square root differs from its power.
  const std::string script =
      "import copy, sys, torch\n"
      "for name in ('Adam', 'AdamW'):\n"
      "    p = torch.linspace(-1, 1, 64, dtype=torch.double)\n"
      "    p.requires_grad_().grad = torch.linspace(-2, 3, 64).double()\n"
      "    optimizer = getattr(torch.optim, name)([p])\n"
      "    optimizer.step()\n"
      "    optimizer.state[p]['step'].fill_(1269)\n"
      "    run = {'before': p.detach().clone(), 'gradient': p.grad,\n"
      "           'optimizer': copy.deepcopy(optimizer.state_dict())}\n"
      "    optimizer.step()\n"
      "    run['after'] = p.detach()\n"
      "    torch.save(run, f'{sys.argv[1]}/{name}.pt')\n";
  python_output({"-c", script, folder.path()});
  const auto check = [&](const std::string& name, const MakeOptimizer& make) {
    const auto run =
        read_checkpoint_file(folder / (name + ".pt")).toGenericDict();
    auto parameter = run.at("before").toTensor().requires_grad_();
    parameter.mutable_grad() = run.at("gradient").toTensor();
    const auto optimizer = make({parameter});
    load_optimizer_state(*optimizer, run.at("optimizer"));
    optimizer->step();
    CHECK(parameter.equal(run.at("after").toTensor()));
  };
  check("Adam", maker<Adam>(AdamOptions(0.1)));
  check("AdamW", maker<AdamW>(torch::optim::AdamWOptions(0.1)));
}

TEST_CASE("a step that is refused changes nothing") {
  for (const auto& make :
       {maker<FusedAdam>(AdamOptions(0.1)), maker<Adam>(AdamOptions(0.1))}) {
    const Parameters parameters{
        torch::ones({3}).requires_grad_(), torch::ones({3}).requires_grad_()};
    const auto optimizer = make(parameters);
    parameters[0].mutable_grad() = torch::ones({3});
    optimizer->step();
    const auto before = parameters[0].clone();
    parameters[1].mutable_grad() = torch::ones({3}).to_sparse();
    CHECK_THROWS_WITH(optimizer->step(), Has("sparse"));
    CHECK(parameters[0].equal(before));
    const auto& state = static_cast<const torch::optim::AdamParamState&>(
        *optimizer->state().at(parameters[0].unsafeGetTensorImpl()));
    CHECK(state.step() == 1);
  }
}

TEST_CASE("fused optimizers refuse what their kernels cannot walk") {
  auto weight = torch::ones({4, 2}).requires_grad_();
  FusedSGD sgd({weight}, SGDOptions(0.1));
  weight.mutable_grad() = torch::ones({2, 4});
  CHECK_THROWS_WITH(sgd.step(), Has("[2, 4]"));
  auto parameter = torch::ones({2}, torch::kComplexFloat).requires_grad_();
  parameter.mutable_grad() = torch::ones({2}, torch::kComplexFloat);
  FusedAdamW optimizer(std::vector<torch::Tensor>{parameter});
  CHECK_THROWS_WITH(
      optimizer.step(), Has("does not support complex parameters"));
}

/// Parameters of several layouts, each with a gradient of another one.
Parameters of_other_layouts(int step) {
  torch::manual_seed(step);
  const auto channels_last = torch::MemoryFormat::ChannelsLast;
  const auto imaginary =
      torch::randn({9}, torch::kComplexFloat).conj().slice(0, 0, 4);
  return {
      torch::randn({6, 5, 1, 1}).contiguous(channels_last), // a convolution's
      torch::randn({4, 3, 2, 2}),
      torch::randn({4, 3, 2, 2}).contiguous(channels_last),
      torch::randn({3, 5}).t(),
      torch::randn({1}).expand({4}),
      at::imag(imaginary), // negated when it is read
      torch::randn({6, 4}).narrow(1, 1, 2)};
}

Parameters parameters_of_layouts() {
  torch::manual_seed(1);
  const auto channels_last = torch::MemoryFormat::ChannelsLast;
  Parameters parameters = {
      torch::randn({6, 5, 1, 1}),
      torch::randn({4, 3, 2, 2}).contiguous(channels_last),
      torch::randn({4, 3, 2, 2}),
      torch::randn({5, 3}),
      torch::randn({4}),
      torch::randn({4}),
      torch::randn({6, 4}).narrow(1, 0, 2)}; // with gaps
  for (auto& parameter : parameters) {
    parameter = parameter.detach().requires_grad_();
  }
  return parameters;
}

void step_layouts(Optimizer& optimizer, Parameters& parameters, int step) {
  const auto gradients = of_other_layouts(step);
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].mutable_grad() = gradients[i];
  }
  optimizer.step();
}

TEST_CASE("fused optimizers take gradients of any layout, as LibTorch's do") {
  for (const auto& kind : fused_kinds()) {
    INFO(kind.python);
    auto fused = parameters_of_layouts();
    auto plain = parameters_of_layouts();
    const auto fused_optimizer = kind.fused(fused);
    const auto plain_optimizer = kind.plain(plain);
    for (int step = 0; step < kSteps; ++step) {
      step_layouts(*fused_optimizer, fused, step);
      step_layouts(*plain_optimizer, plain, step);
    }
    for (size_t i = 0; i < fused.size(); ++i) {
      INFO("parameter " << i);
      CHECK(fused[i].strides() == plain[i].strides());
      CHECK(torch::allclose(fused[i], plain[i], 1e-5, 1e-6));
    }
  }
}

TEST_CASE("fused optimizers go on from a state of another layout") {
  for (const auto& kind : fused_kinds()) {
    INFO(kind.python);
    Parameters contiguous = {
        torch::randn({4, 3, 2, 2}), torch::randn({3, 5, 1, 1})};
    Parameters parameters;
    for (auto& parameter : contiguous) {
      parameters.push_back(
          parameter.contiguous(torch::MemoryFormat::ChannelsLast)
              .detach()
              .clone()
              .requires_grad_());
      parameter.requires_grad_();
    }
    const auto step = [](Optimizer& optimizer, Parameters& all, int number) {
      for (auto& parameter : all) {
        parameter.mutable_grad() =
            torch::zeros_like(parameter).copy_(gradient_for(parameter, number));
      }
      optimizer.step();
    };
    const auto first = kind.fused(contiguous);
    step(*first, contiguous, 0);
    for (size_t i = 0; i < contiguous.size(); ++i) {
      const torch::NoGradGuard no_grad;
      parameters[i].copy_(contiguous[i]);
    }
    const auto second = kind.fused(parameters);
    load_optimizer_state(*second, optimizer_state(*first).deepcopy());
    step(*first, contiguous, 1);
    step(*second, parameters, 1);
    for (size_t i = 0; i < contiguous.size(); ++i) {
      CHECK(torch::allclose(parameters[i], contiguous[i], 1e-6, 1e-7));
    }
  }
}

} // namespace ddp::test::fused_optimizers_test
