#pragma once

#include <tests/support/random_graph.h>

#include <deque>

namespace ddp::test {

/// A rank's forwards of one pass, and what they ran on.
struct Forwards {
  std::deque<Interpreter> interpreters;
  /// One for each backward; undefined where there is nothing to derive.
  std::vector<at::Tensor> losses;
};

/// Runs the forwards of a pass, `place.forward` counting. `forwards` has to
/// outlive their backward.
void run_forwards(
    const Graph& graph,
    const std::vector<at::Tensor>& parameters,
    Place place,
    bool checkpoints,
    Forwards& forwards);

/// Does to a gradient what is done between two steps.
void handle(at::Tensor& gradient, Handling handling);

/// What each rank's gradients ought to be. Forwards run in fp64, but in the
/// parameters' own dtypes where one is narrow: too little of a gradient is left
/// by cancellation there.
class Reference {
 public:
  /// `size` is the number of ranks.
  Reference(const Graph& graph, int64_t size);

  void begin(const Step& step);

  /// Works out what the backwards of a pass are going to add.
  void prepare(size_t step, size_t pass);

  /// The backward over one of the losses, on all ranks.
  void accumulate(size_t loss);

  /// Whether any rank has something new since the last reduction.
  bool used(size_t parameter) const;

  void reduce();

  const at::Tensor& gradient(int64_t rank, size_t parameter) const;

  /// What the numbers that a gradient was added up from were like.
  double magnitude(size_t parameter) const;

 private:
  std::vector<at::Tensor> derive(const at::Tensor& loss) const;
  void add(int64_t rank, size_t parameter, const at::Tensor& contribution);

  const Graph& graph_;
  int64_t size_;
  std::vector<at::Tensor> parameters_;
  std::vector<double> magnitudes_;
  // By rank:
  std::vector<std::vector<std::vector<at::Tensor>>> contributions_;
  std::vector<std::vector<at::Tensor>> gradients_;
  std::vector<std::vector<bool>> used_;
};

} // namespace ddp::test
