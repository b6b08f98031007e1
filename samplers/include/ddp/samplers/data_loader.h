#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <ddp/samplers/data_loader_options.h>
#include <ddp/samplers/internal/batch_source.h>
#include <ddp/samplers/internal/batch_workers.h>
#include <ddp/samplers/internal/device_copies.h>
#include <torch/data/iterator.h>
#include <torch/data/samplers/random.h>
#include <torch/ordered_dict.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace ddp {

/// Batches of a dataset in the order of a sampler, loaded ahead by threads:
/// LibTorch's data loader, faster, and one that knows how far the loop is.
///
/// It takes the same datasets (stateless ones) and samplers, and gives the same
/// batches in the same order. What is different:
///
/// - Batches always come in order. Where the dataset ends in `.map(Stack<>())`
///   and makes its samples one by one (no `get_batch` and no transform of
///   batches of the program's), all workers load samples of the oldest batch,
///   so that the first is there early; samples go straight to their place in
///   memory that was used before. They have to be dense, on the CPU, and of one
///   dtype.
/// - Workers compute with one thread each (LibTorch's with as many as there are
///   cores), and get no signals.
/// - With this library's samplers, a batch that the loop gets counts as done,
///   without `advance`. So a state saved in the loop's body, after the step,
///   goes on with the next batch.
/// - An error in the dataset reaches the loop as it was thrown, in its batch's
///   turn, and ends the iteration. After it, or after a `break`, the loader can
///   begin anew.
///
/// Each worker has a copy of the dataset. Not safe to use from several threads
/// at once, and not collective.
///
/// ```
/// auto loader = ddp::make_data_loader(
///     dataset.map(torch::data::transforms::Stack<>()),
///     ddp::DistributedSampler(size, group),
///     ddp::DataLoaderOptions(64).workers(4).device(group.device()));
/// for (auto epoch = loader->epoch(); epoch < epochs; ++epoch) {
///   loader->set_epoch(epoch);
///   for (auto& batch : *loader) {
///     ... step, and now and then save loader->state_dict() ...
///   }
/// }
/// ```
template <typename Dataset, typename Sampler>
class DataLoader {
 public:
  using BatchType = typename Dataset::BatchType;
  using BatchRequestType = typename Sampler::BatchRequestType;

  /// Throws `c10::ValueError` where `batch_size` is 0 or it or `workers` was
  /// negative, and `c10::Error` where LibTorch has no such device.
  DataLoader(Dataset dataset, Sampler sampler, DataLoaderOptions options);

  /// Begins an epoch. Iterators are LibTorch's: each batch once, as
  /// `BatchType&`. One from before throws `c10::Error` when it is incremented.
  torch::data::Iterator<BatchType> begin();
  torch::data::Iterator<BatchType> end();

  const DataLoaderOptions& options() const {
    return options_;
  }

  /// How many batches an epoch has on this rank: Python's `len(loader)`. For
  /// samplers that say how many samples they draw, as this library's do.
  template <typename S = Sampler>
  auto size() const -> decltype(std::declval<const S&>().size()) {
    const auto rest = options_.drop_last() ? 0 : options_.batch_size() - 1;
    return (sampler_.size() + rest) / options_.batch_size();
  }

  /// The sampler's; see `ShardedSampler`. Another epoch or a state ends an
  /// iteration that is not over.
  void set_epoch(int64_t epoch) {
    iteration_ += epoch != sampler_.epoch();
    sampler_.set_epoch(epoch);
  }
  int64_t epoch() const {
    return sampler_.epoch();
  }
  torch::OrderedDict<std::string, at::Tensor> state_dict() const {
    return sampler_.state_dict();
  }
  void load_state_dict(
      const torch::OrderedDict<std::string, at::Tensor>& state) {
    ++iteration_;
    sampler_.load_state_dict(state);
  }
  template <typename State, typename S = Sampler>
  auto plan_state_dict(const State& state)
      -> decltype(std::declval<S&>().plan_state_dict(state)) {
    return [this, load = sampler_.plan_state_dict(state)] {
      ++iteration_;
      load();
    };
  }

 private:
  using SourceOf = detail::SourceOf<Dataset, BatchRequestType>;
  using Source = typename SourceOf::type;
  struct Loaded {
    BatchType batch;
    size_t samples;
  };

  detail::BatchMemory memory() const;
  std::optional<BatchType> next(uint64_t iteration);
  std::optional<Loaded> take();
  std::optional<Loaded> take_copied();
  bool add_job();
  void advance(size_t samples);

  DataLoaderOptions options_;
  size_t max_jobs_;
  Sampler sampler_;
  Source source_;
  detail::DeviceCopies copies_;
  std::optional<Loaded> ahead_;
  /// The living iteration, of which there is one at a time.
  uint64_t iteration_ = 0;
  /// Samples at the end of the epoch that `drop_last` leaves out.
  size_t left_out_ = 0;
  /// The last, so that it ends first.
  detail::BatchWorkers workers_;
};

/// A loader of `dataset` in the order of `sampler`. Throws as its constructor.
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

/// The same with a sampler of the dataset's size; LibTorch's `RandomSampler`
/// where none is named.
template <
    typename Sampler = torch::data::samplers::RandomSampler,
    typename Dataset>
auto make_data_loader(Dataset dataset, DataLoaderOptions options = {})
    -> std::enable_if_t<
        std::is_constructible_v<Sampler, size_t>,
        std::unique_ptr<DataLoader<Dataset, Sampler>>> {
  const auto size = dataset.size();
  TORCH_CHECK_VALUE(
      size, "data loader: a dataset without size needs a sampler");
  return make_data_loader(std::move(dataset), Sampler(*size), options);
}

namespace detail {

template <typename Sampler, typename = void>
struct Counts : std::false_type {};
template <typename Sampler>
struct Counts<
    Sampler,
    std::void_t<decltype(std::declval<Sampler&>().advance(size_t(1)))>>
    : std::true_type {};

} // namespace detail

template <typename Dataset, typename Sampler>
DataLoader<Dataset, Sampler>::DataLoader(
    Dataset dataset,
    Sampler sampler,
    DataLoaderOptions options)
    : options_(detail::checked(options)),
      max_jobs_(std::max<size_t>(
          options_.max_jobs().value_or(2 * options_.workers()),
          1)),
      sampler_(std::move(sampler)),
      source_(SourceOf::samples(dataset), options_.workers(), memory()),
      copies_(options_.device()),
      workers_(options_.workers(), options_.worker_init()) {
  static_assert(
      !Dataset::is_stateful,
      "stateful datasets have LibTorch's torch::data::make_data_loader");
}

template <typename Dataset, typename Sampler>
detail::BatchMemory DataLoader<Dataset, Sampler>::memory() const {
  // Two tensors for each batch that is loaded, in the loop, or still held.
  return {
      2 * (max_jobs_ + 2),
      options_.pin_memory().value_or(options_.device().is_cuda())};
}

template <typename Dataset, typename Sampler>
torch::data::Iterator<typename DataLoader<Dataset, Sampler>::BatchType>
DataLoader<Dataset, Sampler>::begin() {
  workers_.clear();
  ahead_.reset();
  left_out_ = 0;
  sampler_.reset();
  advance(0); // from now on somebody counts
  while (workers_.size() < max_jobs_ && add_job()) {
  }
  using Valid = torch::data::detail::ValidIterator<BatchType>;
  return torch::data::Iterator<BatchType>(std::make_unique<Valid>(
      [this, iteration = ++iteration_] { return next(iteration); }));
}

template <typename Dataset, typename Sampler>
torch::data::Iterator<typename DataLoader<Dataset, Sampler>::BatchType>
DataLoader<Dataset, Sampler>::end() {
  using Sentinel = torch::data::detail::SentinelIterator<BatchType>;
  return torch::data::Iterator<BatchType>(std::make_unique<Sentinel>());
}

template <typename Dataset, typename Sampler>
bool DataLoader<Dataset, Sampler>::add_job() {
  auto request = sampler_.next(options_.batch_size());
  if (!request || request->size() == 0) {
    return false;
  }
  if (options_.drop_last() && request->size() < options_.batch_size()) {
    left_out_ = request->size();
    return false;
  }
  workers_.add(
      std::make_shared<typename Source::Job>(source_, std::move(*request)));
  return true;
}

template <typename Dataset, typename Sampler>
std::optional<typename DataLoader<Dataset, Sampler>::Loaded> DataLoader<
    Dataset,
    Sampler>::take() {
  if (workers_.size() == 0) {
    return std::nullopt;
  }
  const auto job = std::static_pointer_cast<typename Source::Job>(
      workers_.take(options_.timeout()));
  add_job();
  return Loaded{job->take(), job->samples()};
}

/// On a device, the next batch is copied from when the loop gets the one before
/// or, where it was not loaded then, from when it is.
template <typename Dataset, typename Sampler>
std::optional<typename DataLoader<Dataset, Sampler>::Loaded> DataLoader<
    Dataset,
    Sampler>::take_copied() {
  const auto start = [&] {
    auto loaded = take();
    if (loaded) {
      copies_.start(loaded->batch);
    }
    return loaded;
  };
  auto loaded = ahead_ ? std::exchange(ahead_, std::nullopt) : start();
  if (loaded) {
    copies_.finish(loaded->batch);
    if (workers_.is_ready()) {
      ahead_ = start();
    }
  }
  return loaded;
}

template <typename Dataset, typename Sampler>
void DataLoader<Dataset, Sampler>::advance(size_t samples) {
  if constexpr (detail::Counts<Sampler>::value) {
    sampler_.advance(samples);
  }
}

template <typename Dataset, typename Sampler>
std::optional<typename DataLoader<Dataset, Sampler>::BatchType> DataLoader<
    Dataset,
    Sampler>::next(uint64_t iteration) {
  TORCH_CHECK(
      iteration == iteration_,
      "data loader: this iteration is over: another one began (a loop inside "
      "the loop needs a loader of its own), an error ended it, or another "
      "epoch or state was set");
  try {
    auto loaded = copies_.are_needed() ? take_copied() : take();
    advance(loaded ? loaded->samples : std::exchange(left_out_, 0));
    return loaded ? std::optional<BatchType>(std::move(loaded->batch))
                  : std::nullopt;
  } catch (...) {
    ++iteration_; // this one is over
    throw;
  }
}

} // namespace ddp
