#pragma once

#include <tests/support/catch.h>

namespace ddp::test {

using Indices = std::vector<size_t>;
using State = torch::OrderedDict<std::string, at::Tensor>;

/// A dataset whose samples are their own indices.
struct Numbers : torch::data::datasets::Dataset<Numbers, size_t> {
  explicit Numbers(std::optional<size_t> count) : count_(count) {}
  size_t get(size_t index) override {
    return index;
  }
  std::optional<size_t> size() const override {
    return count_;
  }
  std::optional<size_t> count_;
};

/// LibTorch's data loader for the numbers that a sampler draws.
template <typename Sampler>
auto torch_loader(
    Sampler sampler,
    size_t batch_size,
    size_t workers = 0,
    bool ordered = true) {
  return torch::data::make_data_loader(
      Numbers(std::nullopt),
      std::move(sampler),
      torch::data::DataLoaderOptions(batch_size)
          .workers(workers)
          .enforce_ordering(ordered));
}

/// All remaining indices of a sampler.
template <typename Sampler>
Indices drain(Sampler& sampler, size_t batch_size = 7) {
  Indices all;
  while (const auto batch = sampler.next(batch_size)) {
    all.insert(all.end(), batch->begin(), batch->end());
  }
  return all;
}

/// The samples of all batches in one loop over a loader.
template <typename Loader>
Indices drain_loader(Loader& loader) {
  Indices all;
  for (auto& batch : loader) {
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

/// The numbers 0 to `count` - 1.
inline Indices up_to(size_t count) {
  Indices all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

inline Indices sorted(Indices indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
}

/// Calls `body` with options for LibTorch's loader: several numbers of workers,
/// ordered and unordered.
template <typename Body>
void each_way_to_load(size_t batch_size, const Body& body) {
  for (const size_t workers : {0, 1, 2, 3, 4}) {
    for (const bool ordered : {true, false}) {
      INFO(workers << " workers, ordered: " << ordered);
      body(torch::data::DataLoaderOptions(batch_size)
               .workers(workers)
               .enforce_ordering(ordered));
    }
  }
}

/// A run of `world` ranks that step together for at most `steps` batches of the
/// epoch in `state`. Returns the completed samples, and sets `state` to rank
/// 0's state afterwards.
template <typename MakeSampler>
Indices run_ranks(
    const MakeSampler& make_sampler,
    int64_t world,
    size_t batch_size,
    size_t steps,
    std::optional<State>& state) {
  Indices done;
  auto reached = state;
  for (int64_t rank = 0; rank < world; ++rank) {
    auto sampler = make_sampler(world, rank);
    if (state) {
      sampler.load_state_dict(*state);
    }
    sampler.reset(); // like a loader
    for (size_t step = 0; step < steps; ++step) {
      const auto batch = sampler.next(batch_size);
      if (!batch) {
        break;
      }
      done.insert(done.end(), batch->begin(), batch->end());
      sampler.advance(batch->size());
    }
    if (rank == 0) {
      reached = sampler.state_dict();
    }
  }
  state = reached;
  return done;
}

} // namespace ddp::test
