// An MPI solver that trains a surrogate of itself on its own ranks. The solver
// initializes MPI, and ddp uses the solver's communicator.
//   mpirun -n 4 embed_mpi_solver [STEPS]

#include <ddp/ddp.h>

#include <mpi.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <random>
#include <vector>

namespace {

constexpr int kCells = 256; // of each rank
constexpr int kStride = 4; // time steps that the surrogate takes at once

/// A ring of cells in which a quantity spreads and grows: u' = D u'' + u (1 -
/// u). Each rank has a part of the ring, with a margin of its neighbors' cells.
class Ring {
 public:
  Ring() : cells_(kCells + 2 * kStride) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    random_.seed(rank_);
    restart();
  }

  /// Sets the cells to random waves.
  void restart() {
    std::uniform_real_distribution<float> draw(0, 1);
    const float height = draw(random_);
    const float wave = 0.02F + 0.3F * draw(random_);
    for (size_t i = 0; i < cells_.size(); ++i) {
      cells_[i] = height * (0.5F + 0.5F * std::sin(wave * float(i)));
    }
  }

  /// This rank's cells and the margins, before the next call to `advance`.
  torch::Tensor cells() {
    exchange(rank_ - 1, kStride, rank_ + 1, kStride + kCells);
    exchange(rank_ + 1, kCells, rank_ - 1, 0);
    return torch::tensor(cells_);
  }

  /// Does `kStride` time steps, after which the margins are invalid.
  void advance() {
    for (int step = 1; step <= kStride; ++step) {
      const auto old = cells_;
      for (size_t i = step; i + step < cells_.size(); ++i) {
        const float flow = old[i - 1] - 2 * old[i] + old[i + 1];
        cells_[i] = old[i] + 0.2F * flow + 0.1F * old[i] * (1 - old[i]);
      }
    }
  }

 private:
  /// Sends the cells from `first` on to a neighbor, and receives the other
  /// neighbor's cells.
  void exchange(int to, int first, int from, int margin) {
    MPI_Sendrecv(
        &cells_[first],
        kStride,
        MPI_FLOAT,
        (to + size_) % size_,
        0,
        &cells_[margin],
        kStride,
        MPI_FLOAT,
        (from + size_) % size_,
        0,
        MPI_COMM_WORLD,
        MPI_STATUS_IGNORE);
  }

  int rank_ = 0;
  int size_ = 1;
  std::mt19937 random_;
  std::vector<float> cells_;
};

/// Predicts a cell's next value from its neighborhood, as a change.
struct Surrogate : torch::nn::Module {
  torch::nn::Linear first{nullptr}, last{nullptr};

  Surrogate() {
    first = register_module("first", torch::nn::Linear(2 * kStride + 1, 32));
    last = register_module("last", torch::nn::Linear(32, 1));
  }

  torch::Tensor forward(const torch::Tensor& neighbourhoods) {
    return neighbourhoods.select(1, kStride) +
        last(torch::tanh(first(neighbourhoods))).squeeze(1);
  }
};

void train(int steps) {
  auto group = ddp::ProcessGroup::from_mpi(MPI_COMM_WORLD);
  ddp::manual_seed(1, group);
  auto net = std::make_shared<Surrogate>();
  ddp::Reducer reducer(net, group);

  torch::optim::Adam optimizer(net->parameters(), 3e-3);
  Ring ring;
  for (int step = 0; step < steps; ++step) {
    if (step % 20 == 0) {
      ring.restart();
    }
    const auto before = ring.cells().unfold(0, 2 * kStride + 1, 1);
    ring.advance();
    const auto after = ring.cells().narrow(0, kStride, kCells);
    optimizer.zero_grad();
    auto loss = torch::mse_loss(net->forward(before), after);
    loss.backward(); // averages over the solver's ranks
    optimizer.step();
    if (step % 50 == 0 || step + 1 == steps) {
      auto mean = loss.detach();
      group.all_reduce(mean, ddp::ReduceOp::kMean);
      if (group.rank() == 0) {
        std::cout << "step " << step << ": error "
                  << std::sqrt(mean.item<float>()) << std::endl;
      }
    }
  }
  ddp::verify_same_parameters(*net, group);
}

} // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  train(argc > 1 ? std::atoi(argv[1]) : 500);
  MPI_Finalize(); // by the solver, after ddp's last use
}
