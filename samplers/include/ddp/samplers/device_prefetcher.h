#pragma once

#include <ddp/samplers/internal/batch_memory.h>
#include <torch/data/iterator.h>

#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace ddp {

template <typename Dataset, typename Sampler>
class DataLoader;

namespace detail {
template <typename Loader>
inline constexpr bool copies_by_itself_v = false;
template <typename Dataset, typename Sampler>
inline constexpr bool copies_by_itself_v<DataLoader<Dataset, Sampler>> = true;
} // namespace detail

/// The batches of a data loader, on a device. While the loop computes with one
/// batch, the next is copied from pinned memory on a separate stream.
///
/// ```
/// for (auto& batch : ddp::DevicePrefetcher(*loader, group.device())) {
///   loss_of(net->forward(batch.data), batch.target).backward();
/// }
/// ```
///
/// The prefetcher moves the tensors that `visit_tensors` finds in a batch, and
/// fetches one batch ahead (none on the CPU). Call a sampler's `advance` in the
/// loop, as usual. `ddp::DataLoader`, which counts automatically, has the
/// option `device` instead. Not collective.
template <typename Loader>
class DevicePrefetcher {
  static_assert(
      !detail::copies_by_itself_v<Loader>,
      "use the option device of ddp::DataLoaderOptions");

 public:
  using BatchType = typename Loader::BatchType; ///< The loader's batch type.

  /// Throws `c10::Error` if this LibTorch does not support the device. The
  /// loader must outlive the prefetcher.
  DevicePrefetcher(Loader& loader, c10::Device device)
      : loader_(loader), copies_(device) {}

  /// Begins an epoch of the loader.
  torch::data::Iterator<BatchType> begin() {
    source_.emplace(loader_.begin());
    ahead_.reset();
    error_ = nullptr;
    started_ = false;
    using Iterator = torch::data::detail::ValidIterator<BatchType>;
    return torch::data::Iterator<BatchType>(
        std::make_unique<Iterator>([this] { return next(); }));
  }

  /// The end of the epoch.
  torch::data::Iterator<BatchType> end() {
    using Iterator = torch::data::detail::SentinelIterator<BatchType>;
    return torch::data::Iterator<BatchType>(std::make_unique<Iterator>());
  }

 private:
  std::optional<BatchType> next() {
    if (!copies_.are_needed()) {
      return fetch();
    }
    if (!started_) {
      fetch_ahead();
    }
    if (error_) {
      std::rethrow_exception(error_);
    }
    auto batch = std::move(ahead_);
    if (batch) {
      copies_.finish(*batch);
      fetch_ahead();
    }
    return batch;
  }

  std::optional<BatchType> fetch() {
    if (std::exchange(started_, true)) {
      ++*source_;
    }
    if (*source_ == loader_.end()) {
      return std::nullopt;
    }
    return std::move(**source_);
  }

  /// Keeps an error for the next call, since the loop has not yet computed with
  /// the previous batch.
  void fetch_ahead() {
    ahead_.reset();
    try {
      ahead_ = fetch();
      if (ahead_) {
        copies_.start(*ahead_);
      }
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  Loader& loader_;
  detail::DeviceCopies copies_;
  std::optional<torch::data::Iterator<BatchType>> source_;
  bool started_ = false;
  std::optional<BatchType> ahead_;
  std::exception_ptr error_;
};

} // namespace ddp
