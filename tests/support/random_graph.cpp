#include <tests/support/random_graph.h>

#include <algorithm>
#include <initializer_list>
#include <random>

namespace ddp::test {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  /// One of 0 ... count - 1.
  size_t below(size_t count) {
    return engine_() % count;
  }
  size_t between(size_t first, size_t last) {
    return first + below(last - first + 1);
  }
  bool chance(int percent) {
    return below(100) < static_cast<size_t>(percent);
  }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }

 private:
  std::mt19937_64 engine_;
};

/// Draws a graph, in the order of the members.
class Generator {
 public:
  Generator(uint64_t seed, int64_t size) : random_(seed), size_(size) {
    graph_.seed = seed;
  }

  Graph draw() {
    graph_.width = static_cast<int64_t>(random_.between(1, 4));
    graph_.by_rank = random_.chance(75);
    graph_.steady = random_.chance(35);
    graph_.finish = random_.chance(25);
    draw_parameters();
    draw_net();
    graph_.frozen = draw_frozen();
    draw_steps();
    draw_options();
    return std::move(graph_);
  }

 private:
  at::ScalarType draw_dtype(size_t precision) {
    if (precision < 40) {
      return at::kFloat;
    }
    if (precision < 65) {
      return at::kDouble;
    }
    if (precision < 90) {
      return random_.one_of({at::kFloat, at::kDouble});
    }
    return random_.one_of(
        {at::kFloat, precision < 95 ? at::kHalf : at::kBFloat16});
  }

  void draw_parameters() {
    const auto precision = random_.below(100);
    const auto count = random_.between(2, 12);
    for (size_t i = 0; i < count; ++i) {
      ParameterDescription parameter;
      parameter.shape = random_.one_of(
          {Shape::kMatrix,
           Shape::kMatrix,
           Shape::kVector,
           Shape::kVector,
           Shape::kScalar,
           Shape::kImage,
           Shape::kEmpty});
      if (random_.chance(30)) {
        parameter.layout =
            random_.one_of({Layout::kTransposed, Layout::kGapped});
      }
      parameter.dtype = draw_dtype(precision);
      graph_.parameters.push_back(parameter);
    }
    head_ = random_.below(count);
  }

  std::vector<size_t> with_shape(std::initializer_list<Shape> shapes) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < graph_.parameters.size(); ++i) {
      const auto shape = graph_.parameters[i].shape;
      if (std::find(shapes.begin(), shapes.end(), shape) != shapes.end()) {
        found.push_back(i);
      }
    }
    return found;
  }

  void draw_net() {
    const auto count = random_.between(1, 4);
    for (size_t i = 0; i < count; ++i) {
      graph_.root.children.push_back(draw_node(3));
    }
    if (!graph_.finish) {
      graph_.root.children.push_back({Operation::kShift, {head_}, {}});
    }
  }

  Node draw_node(size_t depth) {
    if (depth == 0 || random_.chance(40)) {
      return draw_leaf();
    }
    Node node;
    const auto kind = random_.below(10);
    // Checkpoints need the same backward in each step.
    if (graph_.steady && kind < 4) {
      node.operation = Operation::kCheckpoint;
      node.children.push_back(draw_node(depth - 1));
      return node;
    }
    if (kind < 7) {
      node.operation = Operation::kBranch;
      node.number = ++branches_;
    } else {
      node.operation = kind < 8 ? Operation::kMean : Operation::kSequence;
    }
    const auto count = random_.between(2, 3);
    for (size_t i = 0; i < count; ++i) {
      node.children.push_back(draw_node(depth - 1));
    }
    return node;
  }

  Node draw_leaf() {
    const auto kind = random_.below(20);
    const auto matrices = with_shape({Shape::kMatrix});
    const auto vectors = with_shape({Shape::kVector});
    const auto scales = with_shape({Shape::kVector, Shape::kScalar});
    const auto pick = [this](const std::vector<size_t>& from) {
      return from[random_.below(from.size())];
    };
    if (kind == 0) {
      return {Operation::kDetach, {}, {}};
    }
    if (kind < 9 && !matrices.empty() && !vectors.empty()) {
      return {Operation::kLinear, {pick(matrices), pick(vectors)}, {}};
    }
    if (kind < 14 && !scales.empty()) {
      return {Operation::kScale, {pick(scales)}, {}};
    }
    return {Operation::kShift, {random_.below(graph_.parameters.size())}, {}};
  }

  std::vector<bool> draw_frozen() {
    freezes_ = random_.chance(30);
    std::vector<bool> frozen(graph_.parameters.size());
    for (size_t i = 0; freezes_ && i < frozen.size(); ++i) {
      frozen[i] = i != head_ && random_.chance(30);
    }
    return frozen;
  }

  void draw_steps() {
    steady_forwards_ = static_cast<int>(random_.between(1, 2));
    steady_together_ = random_.chance(50);
    const auto count = random_.between(3, 4);
    for (size_t i = 0; i < count; ++i) {
      Step step;
      step.frozen = i == 0 ? graph_.frozen : graph_.steps[i - 1].frozen;
      // A net with checkpoints begins with the parameters of its construction.
      const bool may_change = freezes_ && (i > 0 || !graph_.steady);
      for (size_t k = 0; may_change && k < step.frozen.size(); ++k) {
        if (k != head_ && random_.chance(25)) {
          step.frozen[k] = !step.frozen[k];
        }
      }
      step.handling = draw_handling();
      const auto passes = random_.between(1, 3);
      for (size_t k = 0; k < passes; ++k) {
        step.passes.push_back(draw_pass(k + 1 == passes));
      }
      graph_.steps.push_back(step);
    }
  }

  Pass draw_pass(bool last) {
    Pass pass;
    pass.synchronized = random_.chance(last ? 90 : 30);
    pass.forwards = random_.chance(25) ? 2 : 1;
    pass.together = random_.chance(60);
    pass.repeats = random_.chance(15) ? 2 : 1;
    if (graph_.steady) {
      pass.forwards = steady_forwards_;
      pass.together = steady_together_;
    }
    const bool may_sit_out =
        pass.synchronized ? graph_.finish && !graph_.steady : true;
    if (graph_.by_rank && may_sit_out && random_.chance(30)) {
      pass.left_out = static_cast<int64_t>(random_.below(size_));
    }
    return pass;
  }

  std::vector<Handling> draw_handling() {
    const auto draw = [this] {
      return random_.one_of(
          {Handling::kNone,
           Handling::kNone,
           Handling::kZero,
           Handling::kKeep,
           Handling::kHalve,
           Handling::kReplace});
    };
    std::vector<Handling> handling(graph_.parameters.size(), draw());
    if (random_.chance(25)) {
      std::generate(handling.begin(), handling.end(), draw);
    }
    return handling;
  }

  void draw_options() {
    auto& options = graph_.options;
    options.find_unused_parameters(random_.chance(25));
    options.static_graph(random_.chance(25));
    options.gradient_as_bucket_view(random_.chance(50));
    // Forming connections takes longer than a graph's backwards.
    options.share_communicator(random_.chance(95));
    options.check_finite(random_.chance(10));
    options.check_divergence_every(random_.chance(10) ? 2 : 0);
    options.skip_all_reduce_unused_params(
        !graph_.by_rank && random_.chance(50));
    // Checkpoints create leaves.
    options.unmanaged_leaves(Severity::kIgnore);
    draw_caps();
  }

  void draw_caps() {
    auto& options = graph_.options;
    if (random_.chance(70)) {
      options.bucket_cap_mb(draw_cap());
    }
    if (random_.chance(40)) {
      options.first_bucket_cap_mb(draw_cap());
    }
    if (random_.chance(20)) {
      options.bucket_cap_mb_list({draw_cap(), draw_cap(), draw_cap()});
    }
  }

  /// From one byte, for a bucket per parameter, to one bucket for all.
  double draw_cap() {
    return random_.one_of({1e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1.0});
  }

  Random random_;
  int64_t size_;
  Graph graph_;
  /// The parameter that each backward reaches, unless `finish`.
  size_t head_ = 0;
  bool freezes_ = false;
  uint64_t branches_ = 0;
  int steady_forwards_ = 1;
  bool steady_together_ = true;
};
} // namespace

Graph random_graph(uint64_t seed, int64_t size) {
  return Generator(seed, size).draw();
}
} // namespace ddp::test
