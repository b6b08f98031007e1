#pragma once

#include <ddp/samplers/data_loader_options.h>
#include <ddp/samplers/internal/batch_source.h>
#include <torch/data/iterator.h>
#include <torch/data/samplers/random.h>
#include <torch/ordered_dict.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace ddp {

/// Batches of a dataset in a sampler's order, loaded ahead by threads: a faster
/// version of LibTorch's data loader that tracks the loop's progress.
///
/// The loader takes LibTorch's samplers and stateless datasets, and gives the
/// same batches in the same order. The differences are:
///
/// - Batches are always in order. If a dataset that ends in `.map(Stack<>())`
///   makes samples individually (the program has no `get_batch` or batch
///   transform), all workers load samples of the oldest batch, directly into
///   reused memory. These samples must be dense, on the CPU, and of one dtype.
/// - Each worker computes with one thread (LibTorch's use one per core), and
///   receives no signals.
/// - With this library's samplers, a batch counts as used when the loop gets
///   it, without `advance`; a state saved after a step resumes with the next.
/// - A dataset's exception reaches the loop unchanged, in place of the batch.
///   After an exception or a `break`, the loader can begin again.
///
/// Each worker has a copy of the dataset. Not thread-safe, and not collective.
///
/// ```
/// auto loader = ddp::make_data_loader(
///     dataset.map(torch::data::transforms::Stack<>()),
///     ddp::DistributedSampler(size, group),
///     ddp::DataLoaderOptions(64).workers(4).device(group.device()));
/// for (auto epoch = loader->epoch(); epoch < epochs; ++epoch) {
///   loader->set_epoch(epoch);
///   for (auto& batch : *loader) { ... step, maybe loader->state_dict() ... }
/// }
/// ```
template <typename Dataset, typename Sampler>
class DataLoader {
 public:
  using BatchType = typename Dataset::BatchType; ///< The dataset's type.
  using BatchRequestType = typename Sampler::BatchRequestType; ///< A request.

  /// Throws `c10::ValueError` if `batch_size` is 0 or negative, or `workers` is
  /// negative, and `c10::Error` if LibTorch does not support the device.
  DataLoader(Dataset dataset, Sampler sampler, DataLoaderOptions options);

  /// Begins an epoch. The iterator yields each batch once, as `BatchType&`. An
  /// earlier iterator throws `c10::Error` when it is incremented.
  torch::data::Iterator<BatchType> begin();
  torch::data::Iterator<BatchType> end(); ///< The end of an epoch.

  /// The options as passed.
  const DataLoaderOptions& options() const {
    return options_;
  }

  /// This rank's number of batches in a whole epoch: Python's `len(loader)`.
  /// Requires a sampler with a `size()` in samples, such as this library's.
  template <typename S = Sampler>
  auto size() const -> decltype(std::declval<const S&>().size()) {
    const auto rest = options_.drop_last() ? 0 : options_.batch_size() - 1;
    return (sampler_.size() + rest) / options_.batch_size();
  }

  /// Sets the epoch. A new epoch or state ends an unfinished iteration.
  void set_epoch(int64_t epoch) {
    iteration_ += epoch != sampler_.epoch();
    sampler_.set_epoch(epoch);
  }
  /// The epoch that was last set or loaded.
  template <typename S = Sampler>
  auto epoch() const -> decltype(std::declval<const S&>().epoch()) {
    return sampler_.epoch();
  }
  /// The sampler's state after the batches that the loop has taken.
  torch::OrderedDict<std::string, at::Tensor> state_dict() const {
    return sampler_.state_dict();
  }
  /// Resumes from a state.
  void load_state_dict(
      const torch::OrderedDict<std::string, at::Tensor>& state) {
    plan_state_dict(state)();
  }
  /// Checks a state, and returns a function that loads it.
  template <typename State, typename S = Sampler>
  auto plan_state_dict(const State& state)
      -> decltype(std::declval<S&>().plan_state_dict(state)) {
    return [this, load = sampler_.plan_state_dict(state)] {
      ++iteration_;
      load();
    };
  }

 private:
  using Source = typename detail::SourceOf<Dataset, BatchRequestType>::type;
  using Loaded = detail::LoadedBatch<BatchType>;

  std::optional<BatchType> next(uint64_t iteration);
  std::optional<Loaded> take();
  std::optional<Loaded> take_copied();
  bool add_job();

  DataLoaderOptions options_;
  size_t max_jobs_;
  Sampler sampler_;
  Source source_;
  detail::DeviceCopies copies_;
  std::optional<Loaded> ahead_;
  uint64_t iteration_ = 0; // earlier iterations have ended
  size_t left_out_ = 0; // samples of the epoch that `drop_last` drops
  detail::BatchWorkers workers_; // last, to be destroyed first
};

/// Loads `dataset` in the order of `sampler`. Throws as `DataLoader` does.
template <
    typename Dataset,
    typename Sampler,
    typename = typename Sampler::BatchRequestType>
std::unique_ptr<DataLoader<Dataset, Sampler>> make_data_loader(
    Dataset dataset,
    Sampler sampler,
    DataLoaderOptions options = {}) {
  return std::make_unique<DataLoader<Dataset, Sampler>>(
      std::move(dataset), std::move(sampler), options);
}

/// As above, with a sampler of the dataset's size; LibTorch's `RandomSampler`
/// by default. Throws `c10::ValueError` if the dataset has no size.
template <
    typename Sampler = torch::data::samplers::RandomSampler,
    typename Dataset>
auto make_data_loader(Dataset dataset, DataLoaderOptions options = {})
    -> std::enable_if_t<
        std::is_constructible_v<Sampler, size_t>,
        std::unique_ptr<DataLoader<Dataset, Sampler>>> {
  const auto size = detail::checked_size(dataset.size());
  return make_data_loader(std::move(dataset), Sampler(size), options);
}

} // namespace ddp

#include <ddp/samplers/internal/data_loader-inl.h>
