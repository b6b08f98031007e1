#include <tests/support/random_graph_run.h>
#include <tests/support/ranks.h>

#include <ddp/reducer.h>

namespace ddp::test::random_graphs_test {

// Random nets in random loops, compared with Reducer's contract, which each
// process computes alone in fp64. A failure names its seed: DDP_TEST_SEED runs
// that graph alone. DDP_TEST_GRAPHS is the number of graphs.

constexpr int kRanks = 3;

/// A rank's forwards of one pass, and their interpreters.
struct Forwards {
  std::deque<Interpreter> interpreters;
  /// One for each backward; undefined if it does not require a gradient.
  std::vector<at::Tensor> losses;
};

/// Runs the forwards of a pass, numbered by `place.forward`. `forwards` must
/// outlive their backward.
void run_forwards(
    const Graph& graph,
    const std::vector<at::Tensor>& parameters,
    Place place,
    bool checkpoints,
    Forwards& forwards) {
  const auto& pass = graph.steps[place.step].passes[place.pass];
  forwards.losses.resize(pass.together ? 1 : pass.forwards);
  if (pass.left_out == place.rank) {
    return;
  }
  for (int i = 0; i < pass.forwards; ++i) {
    place.forward = i;
    const auto& interpreter = forwards.interpreters.emplace_back(
        Interpreter{graph, parameters, place, checkpoints});
    const auto loss = interpreter.loss();
    auto& total = forwards.losses[pass.together ? 0 : i];
    if (loss.requires_grad()) {
      total = total.defined() ? total + loss : loss;
    }
  }
}

/// Handles a gradient between two steps.
void handle(at::Tensor& gradient, Handling handling) {
  if (!gradient.defined()) {
    return;
  }
  if (handling == Handling::kNone) {
    gradient.reset();
  } else if (handling == Handling::kZero) {
    gradient.zero_();
  } else if (handling == Handling::kHalve) {
    gradient.mul_(0.5);
  } else if (handling == Handling::kReplace) {
    gradient = gradient.clone();
  }
}

bool is_narrow(const at::Tensor& parameter) {
  return parameter.element_size() == 2;
}

/// The expected gradients of each rank. Forwards run in fp64, but in the
/// parameters' dtypes if one is narrow: cancellation leaves too little of a
/// gradient there.
class Reference {
 public:
  /// `size` is the number of ranks.
  Reference(const Graph& graph, int64_t size) : graph_(graph), size_(size) {
    parameters_ = make_parameters(graph);
    const bool wide =
        std::none_of(parameters_.begin(), parameters_.end(), is_narrow);
    for (auto& parameter : parameters_) {
      parameter = parameter.detach();
      parameter = wide ? parameter.to(at::kDouble) : parameter.clone();
    }
    const auto count = parameters_.size();
    magnitudes_.resize(count, 1e-2);
    gradients_.resize(size, std::vector<at::Tensor>(count));
    used_.resize(size, std::vector<bool>(count));
  }

  void begin(const Step& step) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].set_requires_grad(!step.frozen[i]);
      for (int64_t rank = 0; rank < size_; ++rank) {
        handle(gradients_[rank][i], step.handling[i]);
        used_[rank][i] = used_[rank][i] && gradients_[rank][i].defined();
      }
    }
  }

  /// Computes the contributions of a pass's backwards.
  void prepare(size_t step, size_t pass) {
    contributions_.assign(size_, {});
    for (int64_t rank = 0; rank < size_; ++rank) {
      Forwards forwards;
      run_forwards(graph_, parameters_, {step, pass, 0, rank}, false, forwards);
      for (const auto& loss : forwards.losses) {
        contributions_[rank].push_back(derive(loss));
      }
    }
  }

  /// The backward over one of the losses, on all ranks.
  void accumulate(size_t loss) {
    for (int64_t rank = 0; rank < size_; ++rank) {
      const auto& contribution = contributions_[rank][loss];
      for (size_t i = 0; i < contribution.size(); ++i) {
        if (contribution[i].defined()) {
          add(rank, i, contribution[i]);
        }
      }
    }
  }

  /// Whether any rank has contributed since the last reduction.
  bool used(size_t parameter) const {
    return std::any_of(used_.begin(), used_.end(), [&](const auto& used) {
      return used[parameter];
    });
  }

  void reduce() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!used(i)) {
        continue;
      }
      auto mean = at::zeros(parameters_[i].sizes(), at::kDouble);
      for (const auto& gradients : gradients_) {
        if (gradients[i].defined()) {
          mean += gradients[i] / size_;
        }
      }
      for (int64_t rank = 0; rank < size_; ++rank) {
        gradients_[rank][i] = mean.clone();
        used_[rank][i] = false;
      }
    }
  }

  const at::Tensor& gradient(int64_t rank, size_t parameter) const {
    return gradients_[rank][parameter];
  }

  /// The magnitude of the summands of a gradient.
  double magnitude(size_t parameter) const {
    return magnitudes_[parameter];
  }

 private:
  std::vector<at::Tensor> derive(const at::Tensor& loss) const {
    std::vector<at::Tensor> result(parameters_.size());
    std::vector<at::Tensor> inputs;
    for (const auto& parameter : parameters_) {
      if (parameter.requires_grad()) {
        inputs.push_back(parameter);
      }
    }
    if (!loss.defined()) {
      return result;
    }
    const auto found = torch::autograd::grad(
        {loss}, inputs, {}, false, false, /*allow_unused=*/true);
    for (size_t i = 0, k = 0; i < result.size(); ++i) {
      if (parameters_[i].requires_grad()) {
        const auto& gradient = found[k++];
        result[i] = gradient.defined() ? gradient.to(at::kDouble) : gradient;
      }
    }
    return result;
  }

  void add(int64_t rank, size_t parameter, const at::Tensor& contribution) {
    auto& gradient = gradients_[rank][parameter];
    gradient =
        gradient.defined() ? gradient + contribution : contribution.clone();
    used_[rank][parameter] = true;
    if (gradient.numel() > 0) {
      magnitudes_[parameter] =
          std::max(magnitudes_[parameter], gradient.abs().max().item<double>());
    }
  }

  const Graph& graph_;
  int64_t size_;
  std::vector<at::Tensor> parameters_;
  std::vector<double> magnitudes_;
  // Per rank.
  std::vector<std::vector<std::vector<at::Tensor>>> contributions_;
  std::vector<std::vector<at::Tensor>> gradients_;
  std::vector<std::vector<bool>> used_;
};

/// The coarsest of the dtypes decides: values pass through all of them.
double tolerance(const std::vector<at::Tensor>& parameters) {
  double result = 0;
  for (const auto& parameter : parameters) {
    switch (parameter.scalar_type()) {
      case at::kDouble:
        result = std::max(result, 1e-10);
        break;
      case at::kFloat:
        result = std::max(result, 1e-4);
        break;
      case at::kHalf:
        result = std::max(result, 0.02);
        break;
      default:
        result = std::max(result, 0.15);
    }
  }
  return result;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || a.equal(b));
}

/// A Reducer takes frozen parameters from modules only.
std::shared_ptr<torch::nn::Module> as_module(
    const std::vector<at::Tensor>& parameters) {
  auto module = std::make_shared<torch::nn::Module>();
  for (size_t i = 0; i < parameters.size(); ++i) {
    module->register_parameter(
        std::to_string(i), parameters[i], parameters[i].requires_grad());
  }
  return module;
}

/// One graph's training loop.
class Loop {
 public:
  Loop(const Graph& graph, const ProcessGroup& group, const ProcessGroup& own)
      : graph_(graph),
        checks_(own),
        parameters_(make_parameters(graph)),
        tolerance_(tolerance(parameters_)),
        reference_(graph, kRanks),
        reducer_(as_module(parameters_), group, graph.options) {}

  void run() {
    for (size_t step = 0; step < graph_.steps.size(); ++step) {
      INFO("step " << step);
      begin(graph_.steps[step]);
      for (size_t pass = 0; pass < graph_.steps[step].passes.size(); ++pass) {
        INFO("pass " << pass);
        run_pass(step, pass);
      }
      check_equal_on_all();
    }
  }

 private:
  void begin(const Step& step) {
    reference_.begin(step);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].set_requires_grad(!step.frozen[i]);
      handle(parameters_[i].mutable_grad(), step.handling[i]);
    }
  }

  void run_pass(size_t step, size_t index) {
    const auto& pass = graph_.steps[step].passes[index];
    reference_.prepare(step, index);
    Forwards forwards;
    run_forwards(
        graph_, parameters_, {step, index, 0, checks_.rank()}, true, forwards);
    std::optional<Reducer::NoSyncGuard> guard;
    if (!pass.synchronized) {
      guard.emplace(reducer_.no_sync());
    }
    for (size_t loss = 0; loss < forwards.losses.size(); ++loss) {
      for (int repeat = 1; repeat <= pass.repeats; ++repeat) {
        INFO("loss " << loss << ", backward " << repeat);
        reference_.accumulate(loss);
        backward(forwards.losses[loss], repeat < pass.repeats, pass);
      }
    }
  }

  void backward(const at::Tensor& loss, bool retain, const Pass& pass) {
    std::vector<at::Tensor> before(parameters_.size());
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto& gradient = parameters_[i].grad();
      before[i] = gradient.defined() ? gradient.clone() : at::Tensor();
    }
    if (loss.defined()) {
      loss.backward({}, retain);
    }
    if (graph_.finish) {
      reducer_.finish_backward();
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
      INFO("parameter " << i);
      const bool touched = !pass.synchronized || reference_.used(i);
      if (!touched && !same_bits(parameters_[i].grad(), before[i])) {
        FAIL(
            "no rank used it, but the gradient\n"
            << before[i] << "\nbecame\n"
            << parameters_[i].grad());
      }
    }
    if (pass.synchronized) {
      reference_.reduce();
    }
    check_values();
  }

  void check_values() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      INFO("parameter " << i);
      const auto& expected = reference_.gradient(checks_.rank(), i);
      const auto& actual = parameters_[i].grad();
      REQUIRE(actual.defined() == expected.defined());
      if (!expected.defined()) {
        continue;
      }
      REQUIRE(actual.sizes() == expected.sizes());
      REQUIRE(actual.scalar_type() == parameters_[i].scalar_type());
      const auto bound = tolerance_ * reference_.magnitude(i);
      const auto close =
          at::allclose(actual.to(at::kDouble), expected, 0, bound);
      if (!close) {
        CAPTURE(actual, expected, bound);
        REQUIRE(close);
      }
    }
  }

  void check_equal_on_all() {
    std::vector<at::Tensor> parts{at::zeros({1}, at::kByte)};
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto& gradient = parameters_[i].grad();
      if (gradient.defined() && !reference_.used(i)) {
        const auto flat = at::empty({gradient.numel()}, gradient.options());
        parts.push_back(flat.copy_(gradient.reshape(-1)).view(at::kByte));
      }
    }
    const auto bytes = at::cat(parts);
    for (const auto& other : checks_.all_gather(bytes)) {
      REQUIRE(other.equal(bytes));
    }
  }

  const Graph& graph_;
  ProcessGroup checks_;
  std::vector<at::Tensor> parameters_;
  double tolerance_;
  Reference reference_;
  Reducer reducer_;
};

void check(uint64_t seed, const ProcessGroup& group, const ProcessGroup& own) {
  const auto graph = random_graph(seed, kRanks);
  INFO("DDP_TEST_SEED=" << seed);
  try {
    Loop(graph, group, own).run();
  } catch (const c10::Error& error) {
    FAIL(error.what_without_backtrace());
  }
}

TEST_CASE("random nets in random loops get the mean of all ranks") {
  const auto count = variable("DDP_TEST_GRAPHS", 300);
  const auto body = [count] {
    const auto group = init_process_group(
        ProcessGroupOptions().timeout(std::chrono::seconds(20)));
    const auto own = group.duplicate();
    if (std::getenv("DDP_TEST_SEED")) {
      check(variable("DDP_TEST_SEED", 0), group, own);
      return;
    }
    for (int seed = 1; seed <= count; ++seed) {
      check(seed, group, own);
    }
  };
  const std::chrono::seconds timeout(60 + count / 2);
  ranks(kRanks, RankOptions().timeout(timeout), body);
}

} // namespace ddp::test::random_graphs_test
