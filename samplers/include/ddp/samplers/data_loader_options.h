#pragma once

#include <c10/core/Device.h>
#include <ddp/internal/export.h>
#include <torch/arg.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>

namespace ddp {

/// How a `DataLoader` loads. The first six are LibTorch's, by the same names.
struct DataLoaderOptions {
  DataLoaderOptions() = default;
  /* implicit */ DataLoaderOptions(size_t batch_size)
      : batch_size_(batch_size) {}

  /// Samples in a batch of this rank.
  TORCH_ARG(size_t, batch_size) = 1;

  /// Threads that load; with 0, the loop's own thread does.
  TORCH_ARG(size_t, workers) = 0;

  /// How many batches are loaded ahead of the loop: twice the workers, if
  /// nothing is said.
  TORCH_ARG(std::optional<size_t>, max_jobs);

  /// How long the loop waits for a batch; without it, as long as it takes.
  TORCH_ARG(std::optional<std::chrono::milliseconds>, timeout);

  /// Without effect: batches come in order in any case.
  TORCH_ARG(bool, enforce_ordering) = true;

  /// Whether to leave out the last batch of an epoch where it is smaller.
  TORCH_ARG(bool, drop_last) = false;

  /// Whether batches lie in pinned memory: if nothing is said, if `device` is a
  /// GPU. Has no effect if there is none.
  TORCH_ARG(std::optional<bool>, pin_memory);

  /// Where the loop is to find the batches. On a GPU, the next is copied while
  /// the loop computes with one, as by `DevicePrefetcher`.
  TORCH_ARG(c10::Device, device) = c10::Device(c10::kCPU);

  /// Called on each worker's thread with its number, from 0 on, before it loads
  /// anything; none without workers. What it throws, the loader's constructor
  /// throws. Source: `worker_init_fn` of Python's `DataLoader`.
  TORCH_ARG(std::function<void(size_t)>, worker_init);
};

namespace detail {
/// The same; throws `c10::ValueError` if a number makes no sense.
DDP_API DataLoaderOptions checked(DataLoaderOptions options);

/// That of a dataset; throws `c10::ValueError` if it has none.
DDP_API size_t checked_size(std::optional<size_t> size);
} // namespace detail

} // namespace ddp
