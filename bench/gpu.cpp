// A step on a GPU without communication, with Python's DistributedDataParallel,
// with c10d::Reducer of the same LibTorch, and with a Reducer, in turns, over
// NCCL; then whole steps as CUDA graphs, and with an optimizer. Prints a table.
// Alone it has one rank; for more: ddprun --nproc-per-node gpu ddp_bench_gpu
// Run: ddp_bench_gpu [rounds]

#include <bench/c10d_reducer.h>
#include <bench/nets.h>
#include <bench/paired.h>
#include <bench/python_peer.h>

#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <ddp/ddp.h>
#include <ddp/optimizers.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kWarmUpSteps = 4; // the buckets are rebuilt in them
constexpr double kRoundSeconds = 0.04;

/// Forwards compute in bfloat16 where that is faster, while it lives.
class Autocast {
 public:
  explicit Autocast(bool on) : on_(on) {
    at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCUDA, on_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCUDA, false);
    at::autocast::clear_cache();
  }

 private:
  bool on_;
};

/// A net that is trained in one way.
class Training {
 public:
  Training(const std::string& name, bool bf16, c10::Device device)
      : bf16_(bf16) {
    torch::manual_seed(0); // c10d::Reducer wants equal nets
    net_ = bench::make_net(name);
    net_.module->to(device);
    net_.input = net_.input.to(device);
  }

  void attach(const ddp::ProcessGroup& group) {
    reducer_.emplace(net_.module, group);
  }

  void attach_c10d(const ddp::ProcessGroup& group) {
    c10d_reducer_ = std::make_unique<bench::C10dReducer>(
        *net_.module,
        group,
        ddp::ReducerOptions().gradient_as_bucket_view(true));
  }

  template <typename SGD>
  void optimize_by() {
    optimizer_ = std::make_unique<SGD>(
        net_.module->parameters(),
        torch::optim::SGDOptions(1e-6).momentum(0.9));
  }

  /// From now on a step is the replay of one.
  void capture() {
    {
      const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
      for (int i = 0; i < kWarmUpSteps; ++i) {
        step();
      }
      net_.module->zero_grad();
      auto graph = std::make_unique<at::cuda::CUDAGraph>();
      graph->capture_begin();
      compute();
      graph->capture_end();
      graph_ = std::move(graph);
    }
    torch::cuda::synchronize();
  }

  void step() {
    if (graph_) {
      graph_->replay();
      return;
    }
    net_.module->zero_grad();
    compute();
  }

 private:
  void compute() {
    const auto forward = [this] {
      const Autocast autocast(bf16_);
      return net_.forward(net_.input);
    };
    const auto output =
        c10d_reducer_ ? c10d_reducer_->forward(forward) : forward();
    output.to(torch::kFloat).pow(2).mean().backward();
    if (optimizer_) {
      optimizer_->step();
    }
  }

  const bool bf16_;
  bench::Net net_;
  std::optional<ddp::Reducer> reducer_;
  std::unique_ptr<bench::C10dReducer> c10d_reducer_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
};

using Peer = std::shared_ptr<const bench::PythonPeer>;

/// What is compared for one net.
class Comparison {
 public:
  /// `python` may be null.
  Comparison(
      std::string net,
      bool bf16,
      const ddp::ProcessGroup& group,
      Peer python)
      : net_(std::move(net)),
        bf16_(bf16),
        group_(group),
        python_(std::move(python)) {}

  /// `prepare` makes it the way that the name says.
  void add(
      const std::string& name,
      const std::function<void(Training&)>& prepare) {
    const auto training =
        std::make_shared<Training>(net_, bf16_, group_.device());
    prepare(*training);
    add(name, [this, training] {
      double host = 0;
      const double seconds = bench::seconds_of([&] {
        host = bench::seconds_of([&] {
          for (int64_t i = 0; i < steps_; ++i) {
            training->step();
          }
        });
        torch::cuda::synchronize();
      });
      return std::pair(seconds, host);
    });
  }

  void add_python(const std::string& name, const std::string& optimizer) {
    if (!python_) {
      return;
    }
    python_->tell(
        c10::str("net ", net_, bf16_ ? " bf16 " : " fp32 ", optimizer));
    add(name, [this] {
      const double seconds = python_->tell(c10::str("steps ", steps_));
      return std::pair(seconds, python_->tell("host"));
    });
  }

  /// Measures, and prints lines of a table in Markdown; ratios are over the
  /// first way.
  void run(int64_t rounds) {
    ways_.front().run(); // alone, to see how many steps make a round
    const double step = ways_.front().run() / static_cast<double>(steps_);
    auto count = torch::tensor(
        std::max<int64_t>(2, static_cast<int64_t>(kRoundSeconds / step)));
    group_.broadcast(count);
    steps_ = count.item<int64_t>();
    const auto meet = [this] {
      torch::cuda::synchronize();
      group_.barrier();
    };
    bench::run_in_turns(ways_, 2, meet);
    for (size_t i = 0; i < ways_.size(); ++i) {
      ways_[i].seconds.clear();
      host_[i]->clear();
    }
    bench::run_in_turns(ways_, rounds, meet);
    bench::take_slowest(ways_, group_);
    if (python_) {
      python_->tell("drop");
    }
    print();
  }

 private:
  void print() const {
    for (size_t i = 0; i < ways_.size(); ++i) {
      const auto result = bench::result_of(net_, ways_[i], ways_);
      const auto ratio = "ratio_" + ways_.front().name;
      const auto in_ms = [&](double seconds) {
        return 1e3 * seconds / static_cast<double>(steps_);
      };
      std::printf(
          "| %s %s | %s | %.3f | %.3f | %.3f | %s |\n",
          net_.c_str(),
          bf16_ ? "bf16" : "fp32",
          ways_[i].name.c_str(),
          in_ms(result["seconds"].get<double>()),
          in_ms(bench::quartiles(*host_[i]).median),
          result.value(ratio, 1.0),
          i == 0 ? "" : quartiles_text(result[ratio + "_quartiles"]).c_str());
    }
    std::fflush(stdout);
  }

  using Run = std::function<std::pair<double, double>()>;

  void add(const std::string& name, const Run& run) {
    const auto host = std::make_shared<std::vector<double>>();
    ways_.push_back(
        {name,
         [run, host] {
           const auto [seconds, queued] = run();
           host->push_back(queued);
           return seconds;
         },
         {}});
    host_.push_back(host);
  }

  static std::string quartiles_text(const nlohmann::json& quartiles) {
    char text[32];
    std::snprintf(
        text,
        sizeof(text),
        "%.3f-%.3f",
        quartiles[0].get<double>(),
        quartiles[1].get<double>());
    return text;
  }

  const std::string net_;
  const bool bf16_;
  const ddp::ProcessGroup group_;
  const Peer python_;
  int64_t steps_ = kWarmUpSteps;
  std::vector<bench::Way> ways_;
  /// Of each way, the seconds until all of a round was queued on the GPU.
  std::vector<std::shared_ptr<std::vector<double>>> host_;
};

/// Backwards alone.
void compare_backwards(
    const std::string& net,
    bool bf16,
    int64_t rounds,
    const ddp::ProcessGroup& group,
    const Peer& python) {
  Comparison comparison(net, bf16, group, python);
  comparison.add("local", [](Training&) {});
  comparison.add(
      "ddp::Reducer", [&](Training& training) { training.attach(group); });
  comparison.add("c10d::Reducer", [&](Training& training) {
    training.attach_c10d(group);
  });
  comparison.add_python("Python's DDP", "none");
  comparison.add(
      "local, graph", [](Training& training) { training.capture(); });
  comparison.add("ddp::Reducer, graph", [&](Training& training) {
    training.attach(group);
    training.capture();
  });
  comparison.run(rounds);
}

/// Whole steps, with momentum.
void compare_steps(
    const std::string& net,
    bool bf16,
    int64_t rounds,
    const ddp::ProcessGroup& group,
    const Peer& python) {
  Comparison comparison(net, bf16, group, python);
  comparison.add("local, FusedSGD", [](Training& training) {
    training.optimize_by<ddp::FusedSGD>();
  });
  comparison.add("ddp, torch::optim::SGD", [&](Training& training) {
    training.attach(group);
    training.optimize_by<torch::optim::SGD>();
  });
  comparison.add("ddp, FusedSGD", [&](Training& training) {
    training.attach(group);
    training.optimize_by<ddp::FusedSGD>();
  });
  comparison.add_python("Python's DDP, SGD(fused=True)", "sgd");
  comparison.add("ddp, FusedSGD, graph", [&](Training& training) {
    training.attach(group);
    training.optimize_by<ddp::FusedSGD>();
    training.capture();
  });
  comparison.run(rounds);
}

} // namespace

int main(int argc, char** argv) {
  if (!torch::cuda::is_available()) {
    std::printf("skipped: no usable GPU\n");
    return 0;
  }
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const auto group =
      ddp::init_process_group(ddp::ProcessGroupOptions().backend("nccl"));
  if (group.rank() != 0) {
    std::freopen("/dev/null", "w", stdout);
  }
  const auto python = bench::PythonPeer::available()
      ? std::make_shared<const bench::PythonPeer>()
      : nullptr;
  std::printf(
      "%d ranks over NCCL, medians of %d rounds\n\n"
      "| net | way | ms a step | of which host | over local | quartiles |\n"
      "|---|---|--:|--:|--:|--:|\n",
      static_cast<int>(group.size()),
      rounds);
  for (const std::string net : {"mlp200", "wide4096"}) {
    compare_backwards(net, /*bf16=*/false, rounds, group, python);
  }
  for (const std::string net : {"resnet50", "transformer"}) {
    for (const bool bf16 : {false, true}) {
      compare_backwards(net, bf16, rounds, group, python);
      c10::cuda::CUDACachingAllocator::emptyCache();
    }
    compare_steps(net, /*bf16=*/true, rounds, group, python);
    c10::cuda::CUDACachingAllocator::emptyCache();
  }
  return 0;
}
