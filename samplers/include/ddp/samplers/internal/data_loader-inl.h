#pragma once

// The definitions of the template in <ddp/samplers/data_loader.h>.
#include <ddp/internal/check.h>
#include <ddp/samplers/data_loader.h>

#include <algorithm>

namespace ddp {
namespace detail {

/// Reports `samples` more used samples to the sampler, if it counts them.
template <typename Sampler>
auto advance(Sampler& sampler, size_t samples)
    -> decltype(sampler.advance(samples)) {
  return sampler.advance(samples);
}
template <typename Sampler>
void advance(const Sampler& /*sampler*/, size_t /*samples*/) {}

/// Tells the sampler that `advance` reports a last batch, also a dropped one.
template <typename Sampler>
auto keep_last_batch(Sampler& sampler) -> decltype(sampler.keep_last_batch()) {
  return sampler.keep_last_batch();
}
template <typename Sampler>
void keep_last_batch(const Sampler& /*sampler*/) {}

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
      source_(
          detail::SourceOf<Dataset, BatchRequestType>::samples(dataset),
          options_.workers(),
          // Two tensors per batch that is being loaded, in use, or held.
          {2 * (max_jobs_ + 2),
           options_.pin_memory().value_or(options_.device().is_cuda())}),
      copies_(options_.device()),
      workers_(options_.workers(), options_.worker_init()) {
  static_assert(
      !Dataset::is_stateful,
      "for stateful datasets, use LibTorch's torch::data::make_data_loader");
}

template <typename Dataset, typename Sampler>
torch::data::Iterator<typename DataLoader<Dataset, Sampler>::BatchType>
DataLoader<Dataset, Sampler>::begin() {
  workers_.clear();
  ahead_.reset();
  left_out_ = 0;
  sampler_.reset();
  // From now on, the loader, not the sampler, counts the used samples.
  detail::advance(sampler_, 0);
  detail::keep_last_batch(sampler_);
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

/// The copy of the next batch to a device starts when the loop gets the
/// previous batch. If the next batch is not loaded by then, the copy starts
/// when the loop requests the batch.
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
std::optional<typename DataLoader<Dataset, Sampler>::BatchType> DataLoader<
    Dataset,
    Sampler>::next(uint64_t iteration) {
  DDP_CHECK(
      iteration == iteration_,
      "data loader: this iteration is over: another iteration began (an inner "
      "loop needs a separate loader), an error ended it, or another epoch or "
      "state was set");
  try {
    auto loaded = copies_.are_needed() ? take_copied() : take();
    auto samples = loaded ? loaded->samples : 0;
    if (!ahead_ && workers_.size() == 0) { // no batch follows
      samples += std::exchange(left_out_, 0);
    }
    detail::advance(sampler_, samples);
    return loaded ? std::optional<BatchType>(std::move(loaded->batch))
                  : std::nullopt;
  } catch (...) {
    ++iteration_; // ends this iteration
    throw;
  }
}

} // namespace ddp
