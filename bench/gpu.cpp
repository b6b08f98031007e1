// Compares steps on a GPU in turns, over NCCL: without communication, with
// Python's DistributedDataParallel, with c10d::Reducer of the same LibTorch,
// and with ddp's Reducer; also as CUDA graphs, and with an optimizer. Prints a
// table. Started alone, it has one rank; for more:
// ddprun --nproc-per-node gpu ddp_bench_gpu
// Run: ddp_bench_gpu [rounds]

#include <bench/paired.h>
#include <bench/python_peer.h>
#include <bench/trainer.h>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <ddp/ddp.h>
#include <ddp/optimizers.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <deque>

namespace {

constexpr int kWarmUpSteps = 4; // the buckets are rebuilt in them
constexpr double kRoundSeconds = 0.04;
constexpr double kMomentum = 0.9;

/// One way to train a net; at first, steps end with backward.
class Training : public bench::Trainer {
 public:
  explicit Training(bench::Task task) : Trainer(std::move(task)) {
    drop_optimizer();
  }

  /// Records a step as a CUDA graph, which later steps replay.
  void capture() {
    {
      const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
      for (int i = 0; i < kWarmUpSteps; ++i) {
        step();
      }
      zero_grad();
      auto graph = std::make_unique<at::cuda::CUDAGraph>();
      graph->capture_begin();
      compute();
      graph->capture_end();
      graph_ = std::move(graph);
    }
    torch::cuda::synchronize();
  }

  void step() {
    graph_ ? graph_->replay() : Trainer::step();
  }

 private:
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
};

using Peer = std::shared_ptr<const bench::PythonPeer>;

/// The variants for one net.
class Comparison {
 public:
  /// `python` may be null.
  Comparison(
      const std::string& net,
      bool bf16,
      const ddp::ProcessGroup& group,
      Peer python)
      : task_{net, /*micro_batches=*/1, group.device(), bf16},
        title_(net + (bf16 ? " bf16" : " fp32")),
        group_(group),
        python_(std::move(python)) {}

  /// `prepare` turns the training into the variant.
  void add(
      const std::string& name,
      const std::function<void(Training&)>& prepare) {
    const auto training = std::make_shared<Training>(task_);
    prepare(*training);
    variants_.push_back({name, [this, training, &host = host_.emplace_back()] {
                           return bench::seconds_of([&] {
                             host.push_back(bench::seconds_of([&] {
                               for (int64_t i = 0; i < steps_; ++i) {
                                 training->step();
                               }
                             }));
                             torch::cuda::synchronize();
                           });
                         }});
  }

  void add_python(const std::string& name, const std::string& optimizer) {
    if (!python_) {
      return;
    }
    python_->tell("net " + title_ + " " + optimizer);
    variants_.push_back({name, [this, &host = host_.emplace_back()] {
                           const double seconds =
                               python_->tell(c10::str("steps ", steps_));
                           host.push_back(python_->tell("host"));
                           return seconds;
                         }});
  }

  /// Measures the variants, and prints lines of a Markdown table, with ratios
  /// to the first variant.
  void run(int64_t rounds) {
    variants_.front().run(); // alone, to see how many steps make a round
    const double step = variants_.front().run() / static_cast<double>(steps_);
    auto count = torch::tensor(
        std::max<int64_t>(2, static_cast<int64_t>(kRoundSeconds / step)));
    group_.broadcast(count);
    steps_ = count.item<int64_t>();
    const auto barrier = [this] {
      torch::cuda::synchronize();
      group_.barrier();
    };
    bench::run_in_turns(variants_, 2, barrier);
    for (size_t i = 0; i < variants_.size(); ++i) {
      variants_[i].seconds.clear();
      host_[i].clear();
    }
    bench::run_in_turns(variants_, rounds, barrier);
    bench::take_slowest(variants_, group_);
    if (python_) {
      python_->tell("drop");
    }
    print();
  }

 private:
  void print() const {
    for (size_t i = 0; i < variants_.size(); ++i) {
      const auto result = bench::result_of(title_, variants_[i], variants_);
      const auto ratio = "ratio_" + variants_.front().name;
      const auto in_ms = [&](double seconds) {
        return 1e3 * seconds / static_cast<double>(steps_);
      };
      std::printf(
          "| %s | %s | %.3f | %.3f | %.3f | %s |\n",
          title_.c_str(),
          variants_[i].name.c_str(),
          in_ms(result["seconds"].get<double>()),
          in_ms(bench::quartiles(host_[i]).median),
          result.value(ratio, 1.0),
          i == 0 ? "" : quartiles_text(result[ratio + "_quartiles"]).c_str());
    }
    std::fflush(stdout);
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

  const bench::Task task_;
  const std::string title_;
  const ddp::ProcessGroup group_;
  const Peer python_;
  int64_t steps_ = kWarmUpSteps;
  std::vector<bench::Variant> variants_;
  /// For each variant, the seconds until a round was queued on the GPU.
  std::deque<std::vector<double>> host_;
};

/// Backwards alone.
void add_backwards(Comparison& comparison, const ddp::ProcessGroup& group) {
  comparison.add("local", [](Training&) {});
  comparison.add(
      "ddp::Reducer", [&](Training& training) { training.attach(group); });
  comparison.add("c10d::Reducer", [&](Training& training) {
    training.attach_c10d(group, /*views=*/true);
  });
  comparison.add_python("Python's DDP", "none");
  comparison.add(
      "local, graph", [](Training& training) { training.capture(); });
  comparison.add("ddp::Reducer, graph", [&](Training& training) {
    training.attach(group);
    training.capture();
  });
}

/// Whole steps, with momentum.
void add_steps(Comparison& comparison, const ddp::ProcessGroup& group) {
  comparison.add("local, FusedSGD", [](Training& training) {
    training.optimize_by<ddp::FusedSGD>(kMomentum);
  });
  comparison.add("ddp, torch::optim::SGD", [&](Training& training) {
    training.attach(group);
    training.optimize_by<torch::optim::SGD>(kMomentum);
  });
  comparison.add("ddp, FusedSGD", [&](Training& training) {
    training.attach(group);
    training.optimize_by<ddp::FusedSGD>(kMomentum);
  });
  comparison.add_python("Python's DDP, SGD(fused=True)", "sgd");
  comparison.add("ddp, FusedSGD, graph", [&](Training& training) {
    training.attach(group);
    training.optimize_by<ddp::FusedSGD>(kMomentum);
    training.capture();
  });
}

} // namespace

int main(int argc, char** argv) {
  if (!torch::cuda::is_available()) {
    std::fprintf(stderr, "ddp_bench_gpu: no usable GPU\n");
    return 1;
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
      "Number of ranks over NCCL: %d. Each number is the median of %d "
      "rounds.\n\n"
      "| net | variant | ms per step | host ms per step | ratio to local | "
      "quartiles of the ratio |\n"
      "|---|---|--:|--:|--:|--:|\n",
      static_cast<int>(group.size()),
      rounds);
  const auto compare = [&](const char* net, bool bf16, const auto& add) {
    {
      Comparison comparison(net, bf16, group, python);
      add(comparison, group);
      comparison.run(rounds);
    }
    c10::cuda::CUDACachingAllocator::emptyCache();
  };
  for (const auto* net : {"mlp200", "wide4096"}) {
    compare(net, /*bf16=*/false, add_backwards);
  }
  for (const auto* net : {"resnet50", "transformer"}) {
    compare(net, /*bf16=*/false, add_backwards);
    compare(net, /*bf16=*/true, add_backwards);
    compare(net, /*bf16=*/true, add_steps);
  }
  return 0;
}
