#pragma once

#include <c10/core/Device.h>
#include <ddp/internal/export.h>
#include <torch/arg.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>

namespace ddp {

/// Options of `DataLoader`. The first six are LibTorch's, with the same names.
struct DataLoaderOptions {
  DataLoaderOptions() = default;
  /// Sets `batch_size` and leaves all other options at their defaults.
  /* implicit */ DataLoaderOptions(size_t batch_size)
      : batch_size_(batch_size) {}

  /// The number of samples in a batch of this rank.
  TORCH_ARG(size_t, batch_size) = 1;

  /// The number of loading threads; with 0, the loop's thread loads batches.
  TORCH_ARG(size_t, workers) = 0;

  /// The number of batches loaded ahead of the loop. Unset: twice `workers`.
  TORCH_ARG(std::optional<size_t>, max_jobs);

  /// The longest time that the loop waits for a batch before it warns and
  /// throws `c10::Error`. No limit without workers, as the loop then loads the
  /// batch itself. The loader's destructor still waits for samples that are
  /// being loaded. Unset: no limit.
  TORCH_ARG(std::optional<std::chrono::milliseconds>, timeout);

  /// Has no effect: batches are always in order.
  TORCH_ARG(bool, enforce_ordering) = true;

  /// Whether to drop the last batch of an epoch if it is smaller.
  TORCH_ARG(bool, drop_last) = false;

  /// Whether batches are in pinned memory. Unset: yes if `device` is a GPU. Has
  /// no effect without a GPU.
  TORCH_ARG(std::optional<bool>, pin_memory);

  /// The device on which the loop gets the batches. The next batch is copied to
  /// a GPU while the loop computes with the current batch, as with
  /// `DevicePrefetcher`.
  TORCH_ARG(c10::Device, device) = c10::Device(c10::kCPU);

  /// A function to call on each worker's thread with the worker's number,
  /// counted from 0, before the worker loads batches; not called without
  /// workers. The loader's constructor throws the function's exceptions. Which
  /// worker loads a sample differs between runs: seed by `sample_seed` instead.
  /// Source: `worker_init_fn` of Python's `DataLoader`.
  TORCH_ARG(std::function<void(size_t)>, worker_init);
};

namespace detail {
/// Returns the options; throws `c10::ValueError` if a number is invalid.
DDP_API DataLoaderOptions checked(DataLoaderOptions options);

/// A dataset's size; throws `c10::ValueError` if it has none.
DDP_API size_t checked_size(std::optional<size_t> size);
} // namespace detail

} // namespace ddp
