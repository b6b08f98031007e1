#include <tests/support/activation_checkpoint.h>
#include <tests/support/comm_hooks.h>
#include <tests/support/either_way.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/temporary_folder.h>

// Every pair of a Reducer's options, and of what a program does with it,
// against plain autograd: each process works out alone what all ranks'
// gradients are.

namespace ddp::test::option_matrix_test {

constexpr int kRanks = 3;
constexpr int kSteps = 10;
constexpr int kUnfrozenFrom = 4;
/// Rank 2 has so many batches where they are uneven.
constexpr int kFewBatches = 6;

/// What a program does, besides the options that it sets.
struct Program {
  ReducerOptions options;
  bool wrapped = false;
  bool branches = false; ///< ranks use different parameters
  bool leaves_out = false; ///< a layer, in every other step
  bool sparse = false;
  bool frozen = false; ///< a layer, at first
  bool checkpoints = false;
  bool accumulates = false; ///< two backwards, the first under no_sync()
  bool creates_graph = false;
  bool keeps_gradients = false; ///< zeros in place of none
  bool finishes = false; ///< by finish_backward()
  bool uneven = false; ///< numbers of batches, under join()
  bool steps_in_backward = false;
  at::Tensor foreign; ///< a leaf of no Reducer, if defined
};

/// A mean, by a hook of the program's own.
struct OwnHook : CommHook {
  Future run(const GradBucket& bucket, const ProcessGroup& group) override {
    bucket.buffer.div_(group.size());
    return sum(bucket.buffer, group);
  }
};

struct Feature {
  const char* name;
  void (*use)(Program&);
};

const std::vector<Feature>& features() {
  static const std::vector<Feature> all = {
      {"find_unused_parameters",
       [](Program& p) { p.options.find_unused_parameters(true); }},
      {"gradient_as_bucket_view",
       [](Program& p) { p.options.gradient_as_bucket_view(true); }},
      {"static_graph", [](Program& p) { p.options.static_graph(true); }},
      {"skip_all_reduce_unused_params",
       [](Program& p) { p.options.skip_all_reduce_unused_params(true); }},
      {"first_bucket_cap_mb",
       [](Program& p) { p.options.first_bucket_cap_mb(1e-5); }},
      {"bucket_cap_mb_list",
       [](Program& p) {
         p.options.bucket_cap_mb_list({1e-5, 1e-4});
       }},
      {"bucket_layout kMeasured",
       [](Program& p) { p.options.bucket_layout(BucketLayout::kMeasured); }},
      {"check_divergence_every",
       [](Program& p) { p.options.check_divergence_every(2); }},
      {"check_finite", [](Program& p) { p.options.check_finite(true); }},
      {"comm_hook",
       [](Program& p) { p.options.comm_hook(std::make_shared<OwnHook>()); }},
      {"parameters_to_ignore",
       [](Program& p) { p.options.parameters_to_ignore({"own.weight"}); }},
      {"record",
       [](Program& p) {
         static const TemporaryFolder folder;
         p.options.record(true).sample_rate(1).timeline_steps("2-4");
         p.options.timeline_folder(folder.path());
       }},
      {"init_sync", [](Program& p) { p.options.init_sync(false); }},
      {"share_communicator",
       [](Program& p) { p.options.share_communicator(false); }},
      {"broadcast_buffers",
       [](Program& p) { p.options.broadcast_buffers(false); }},
      {"buffer_sync",
       [](Program& p) { p.options.buffer_sync(BufferSync::kTrainingForward); }},
      {"move_inputs", [](Program& p) { p.options.move_inputs(false); }},
      {"sparse_parameters",
       [](Program& p) {
         p.sparse = true;
         p.options.sparse_parameters({"words.weight"});
       }},
      {"unmanaged_leaves",
       [](Program& p) { p.options.unmanaged_leaves(Severity::kError); }},
      {"known_leaves",
       [](Program& p) {
         p.foreign = torch::ones({3}, torch::kDouble).requires_grad_();
         p.options.known_leaves({p.foreign});
       }},
      {"DistributedDataParallel", [](Program& p) { p.wrapped = true; }},
      {"branches that differ between ranks",
       [](Program& p) { p.branches = true; }},
      {"a layer left out", [](Program& p) { p.leaves_out = true; }},
      {"sparse gradients", [](Program& p) { p.sparse = true; }},
      {"a layer unfrozen", [](Program& p) { p.frozen = true; }},
      {"checkpointing", [](Program& p) { p.checkpoints = true; }},
      {"no_sync()", [](Program& p) { p.accumulates = true; }},
      {"create_graph", [](Program& p) { p.creates_graph = true; }},
      {"gradients kept", [](Program& p) { p.keeps_gradients = true; }},
      {"finish_backward()", [](Program& p) { p.finishes = true; }},
      {"join()", [](Program& p) { p.uneven = true; }},
      {"step_in_backward()", [](Program& p) { p.steps_in_backward = true; }},
  };
  return all;
}

/// Which of a program's backwards it is.
struct Place {
  int step = 0;
  int part = 0; ///< the backward in the step
  int rank = 0;
};

struct Net : LayeredNet {
  torch::nn::Embedding words;
  torch::nn::Linear stem = linear("stem", 4, 6);
  torch::nn::Linear left = linear("left", 6, 3);
  torch::nn::Linear right = linear("right", 6, 3);
  torch::nn::Linear sometimes = linear("sometimes", 6, 3);
  torch::nn::Linear thawed = linear("thawed", 6, 6);
  torch::nn::Linear own = linear("own", 6, 3);
  /// How many forwards ranks above 0 have had, times the rank.
  at::Tensor forwards = register_buffer("forwards", torch::zeros({}));

  explicit Net(bool sparse)
      : words(
            add("words",
                torch::nn::Embedding(
                    torch::nn::EmbeddingOptions(9, 6).sparse(sparse)))) {
    torch::manual_seed(7);
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) {
      parameter.copy_(torch::randn_like(parameter));
    }
  }

  at::Tensor body(const at::Tensor& x) {
    return torch::tanh(thawed(torch::tanh(stem(x))));
  }

  at::Tensor forward(const Program& program, Place at, bool checkpoints) {
    torch::manual_seed(100 * at.step + 10 * at.part + at.rank);
    auto x = torch::randn({5, 4}, torch::kDouble);
    const auto indices = torch::randint(9, {5}, torch::kLong);
    if (checkpoints) {
      x = checkpoint(x.set_requires_grad(true), [this](const auto& input) {
        return body(input);
      });
    } else {
      x = body(x);
    }
    x = x + words(indices);
    forwards.add_(at.rank);
    auto out = left(x);
    if (program.foreign.defined()) {
      out = out + program.foreign;
    }
    if (!program.branches || (at.step + at.rank) % 2 == 0) {
      out = out + right(x);
    }
    if (!program.leaves_out || at.step % 2 == 0) {
      out = out * torch::tanh(sometimes(x));
    }
    return (out * out).mean() + own(x).mean();
  }

  void freeze(bool frozen) {
    set_requires_grad(*thawed, !frozen);
  }
};

constexpr double kRate = 0.1;

bool has_batch(const Program& program, int step, int rank) {
  return !program.uneven || rank != kRanks - 1 || step < kFewBatches;
}

/// All ranks' nets, in one process.
class Reference {
 public:
  explicit Reference(const Program& program) : program_(program) {
    for (int rank = 0; rank < kRanks; ++rank) {
      nets_.push_back(std::make_shared<Net>(program.sparse));
    }
  }

  void step(int step) {
    for (int rank = 0; rank < kRanks; ++rank) {
      auto& net = *nets_[rank];
      net.freeze(program_.frozen && step < kUnfrozenFrom);
      net.zero_grad();
      for (int part = program_.accumulates ? 0 : 1;
           part < 2 && has_batch(program_, step, rank);
           ++part) {
        net.forward(program_, {step, part, rank}, false).backward();
      }
    }
    const auto names = nets_[0]->named_parameters().keys();
    const torch::NoGradGuard no_grad;
    for (const auto& name : names) {
      if (program_.options.parameters_to_ignore().count(name) == 0) {
        average(name);
      }
    }
  }

  void update() {
    const torch::NoGradGuard no_grad;
    for (const auto& net : nets_) {
      for (auto& parameter : net->parameters()) {
        if (parameter.grad().defined()) {
          parameter.sub_(parameter.grad(), kRate);
        }
      }
    }
  }

  const Net& net(int64_t rank) const {
    return *nets_[rank];
  }

 private:
  void average(const std::string& name) {
    at::Tensor mean;
    for (const auto& net : nets_) {
      const auto gradient = net->named_parameters()[name].grad();
      if (gradient.defined()) {
        const auto part = gradient.to_dense() / kRanks;
        mean = mean.defined() ? mean + part : part;
      }
    }
    for (const auto& net : nets_) {
      net->named_parameters()[name].mutable_grad() = mean;
    }
  }

  Program program_;
  std::vector<std::shared_ptr<Net>> nets_;
};

bool is_near(const at::Tensor& actual, const at::Tensor& expected) {
  if (!expected.defined()) { // zero, where it was kept
    return !actual.defined() || actual.to_dense().eq(0).all().item<bool>();
  }
  return actual.defined() &&
      actual.to_dense().allclose(expected.to_dense(), 1e-9, 1e-11);
}

/// Those whose values or gradients are not what is expected.
std::vector<std::string> differences(
    const Net& net,
    const Net& expected,
    bool gradients) {
  std::vector<std::string> names;
  const auto others = expected.named_parameters();
  for (const auto& parameter : net.named_parameters()) {
    const auto& other = others[parameter.key()];
    if (!is_near(parameter.value().detach(), other.detach())) {
      names.push_back(parameter.key());
    }
    if (gradients && !is_near(parameter.value().grad(), other.grad())) {
      names.push_back("the gradient of " + parameter.key());
    }
  }
  return names;
}

/// After the last backward of a step. In a join, the rank whose buffers all
/// ranks get changes.
void require_buffers(
    const Program& program,
    const Net& net,
    int rank,
    int step) {
  const int parts = program.accumulates ? 2 : 1;
  const auto forwards = net.forwards.item<int>();
  if (!program.options.broadcast_buffers()) {
    REQUIRE(forwards == (step + 1) * parts * rank);
  } else if (program.wrapped && !program.uneven) { // before forwards
    REQUIRE((forwards == rank || forwards == parts * rank));
  } else if (!program.uneven) { // after backwards
    REQUIRE(forwards == 0);
  }
}

const std::vector<std::string> kNone;

void train(const Program& program, const ProcessGroup& group) {
  Reference reference(program);
  const auto net = std::make_shared<Net>(program.sparse);
  net->freeze(program.frozen);
  EitherWay<Net> model(net, group, program.wrapped, program.options);
  torch::optim::SGD optimizer(net->parameters(), kRate);
  if (program.steps_in_backward) {
    model.reducer().step_in_backward(optimizer);
  }
  const auto rank = static_cast<int>(group.rank());
  {
    const auto join = model.join(JoinOptions().enable(program.uneven));
    for (int step = 0; step < kSteps; ++step) {
      INFO("step " << step);
      reference.step(step);
      if (has_batch(program, step, rank)) {
        net->freeze(program.frozen && step < kUnfrozenFrom);
        optimizer.zero_grad(!program.keeps_gradients);
        const auto loss = [&](int part) {
          return model.forward(
              program, Place{step, part, rank}, program.checkpoints);
        };
        if (program.accumulates) {
          const auto guard = model.no_sync();
          loss(0).backward();
        }
        loss(1).backward({}, std::nullopt, program.creates_graph);
        if (program.finishes) {
          model.reducer().finish_backward();
        }
        if (!program.steps_in_backward) {
          optimizer.step();
        }
      }
      reference.update();
      if (has_batch(program, step, rank)) {
        REQUIRE(differences(*net, reference.net(rank), true) == kNone);
        require_buffers(program, *net, rank, step);
      }
    }
  }
  REQUIRE(differences(*net, reference.net(rank), false) == kNone);
}

/// Why two may not meet; empty where they may.
std::string refusal(const std::string& first, const std::string& second) {
  if (first == "skip_all_reduce_unused_params") {
    if (second == "branches that differ between ranks") {
      return "the unused parameters that skip_all_reduce_unused_params leaves "
             "out differ between ranks";
    }
    if (second == "join()") {
      return "join: with skip_all_reduce_unused_params, all ranks must use the "
             "same parameters";
    }
  }
  return "";
}

RANKS_TEST(
    "every pair of options gives plain autograd's gradients",
    3,
    ProcessGroupOptions(),
    RankOptions().timeout(std::chrono::seconds(400))) {
  const auto& all = features();
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = i; j < all.size(); ++j) {
      INFO(all[i].name << " with " << all[j].name);
      Program program;
      // Several buckets, over the connections that there are.
      program.options.bucket_cap_mb(1e-4).share_communicator(true);
      all[i].use(program);
      all[j].use(program);
      const auto reason = refusal(all[i].name, all[j].name);
      if (reason.empty()) {
        train(program, group);
      } else {
        REQUIRE_THROWS_WITH(train(program, group.duplicate()), Has(reason));
      }
    }
  }
}

} // namespace ddp::test::option_matrix_test
