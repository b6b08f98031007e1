#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <ddp/internal/check.h>
#include <ddp/samplers/internal/batch_memory.h>
#include <ddp/samplers/internal/batch_workers.h>
#include <ddp/tensor_traversal.h>
#include <torch/data/datasets/map.h>
#include <torch/data/transforms/base.h>
#include <torch/data/transforms/stack.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace ddp::detail {

/// A batch and its number of samples.
template <typename Batch>
struct LoadedBatch {
  Batch batch;
  size_t samples;
};

/// The common part of sources of batches.
template <typename Dataset>
class SourceBase {
 public:
  /// Makes a copy of the dataset for each thread, as LibTorch's loader does.
  SourceBase(const Dataset& dataset, size_t workers, BatchMemory memory)
      : memory_(std::move(memory)),
        datasets_(std::max<size_t>(workers, 1), dataset) {}

 protected:
  BatchMemory memory_;
  std::vector<Dataset> datasets_;
};

/// Loads batches from a `Dataset` as the dataset makes them, each on one
/// thread.
template <typename Dataset, typename Request>
class BatchSource : public SourceBase<Dataset> {
 public:
  using SourceBase<Dataset>::SourceBase;
  using Batch = typename Dataset::BatchType;

  class Job final : public BatchJob {
   public:
    Job(BatchSource& source, Request request)
        : BatchJob(request.size(), request.size()),
          source_(source),
          request_(std::move(request)) {}

    Batch take() {
      return std::move(*batch_);
    }

   private:
    void load(size_t worker, size_t /*begin*/, size_t /*end*/) override {
      batch_ = source_.datasets_[worker].get_batch(std::move(request_));
      visit_tensors(
          *batch_, [&](at::Tensor& tensor) { source_.memory_.pin(tensor); });
    }

    BatchSource& source_;
    Request request_;
    std::optional<Batch> batch_;
  };
};

/// Stacks batches instead of LibTorch's `Stack`, if the dataset makes samples
/// individually. All threads load samples of the batch, and copy each sample to
/// its row while the sample is in the core's cache.
template <typename Dataset, typename Example>
class StackedSource : public SourceBase<Dataset> {
 public:
  using SourceBase<Dataset>::SourceBase;
  using Request = std::vector<size_t>;
  static constexpr size_t kTensors =
      std::is_same_v<Example, torch::data::TensorExample> ? 1 : 2;

  class Job final : public BatchJob {
   public:
    Job(StackedSource& source, Request indices)
        : BatchJob(indices.size(), source.part_of(indices.size())),
          source_(source),
          indices_(std::move(indices)) {}

    Example take() {
      if constexpr (kTensors == 1) {
        return stacked_[0].tensor();
      } else {
        return {stacked_[0].tensor(), stacked_[1].tensor()};
      }
    }

   private:
    void load(size_t worker, size_t begin, size_t end) override {
      const auto samples = source_.datasets_[worker].get_batch(
          c10::ArrayRef<size_t>(indices_).slice(begin, end - begin));
      DDP_CHECK(
          samples.size() == end - begin,
          "data loader: expected {} samples from the dataset, got {}",
          end - begin,
          samples.size());
      for (size_t row = begin; row < end; ++row) {
        put(row, samples[row - begin]);
      }
    }

    void put(size_t row, const Example& sample) {
      size_t which = 0;
      size_t bytes = 0;
      visit_tensors(sample, [&](const at::Tensor& tensor) {
        stacked_[which++].put(
            row, indices_.size(), tensor, indices_[row], source_.memory_);
        bytes += tensor.nbytes();
      });
      source_.sample_bytes_ = bytes;
    }

    StackedSource& source_;
    Request indices_;
    std::array<StackedTensor, kTensors> stacked_;
  };

 private:
  /// The number of samples in a part: as many as fit into a core's cache, but
  /// few enough that each thread gets some samples.
  size_t part_of(size_t samples) const {
    constexpr size_t kCacheBytes = 256 << 10;
    const auto fit = kCacheBytes / std::max<size_t>(sample_bytes_, 1);
    const auto fair = samples / (2 * this->datasets_.size());
    return std::max<size_t>(std::min(fit, fair), 1);
  }

  std::atomic<size_t> sample_bytes_{kUnknown};
  static constexpr size_t kUnknown = 256 << 10;
};

/// Whether a dataset makes samples individually, since the program overrides
/// only `get`. Parts of a batch can then be requested. A program's `get_batch`
/// or a transform of batches may read in bulk or need the whole batch.
template <typename Dataset, typename = void>
struct IsPerSample : std::false_type {};
template <typename Dataset>
struct IsPerSample<
    Dataset,
    std::void_t<typename Dataset::ExampleType, decltype(&Dataset::get_batch)>>
    : std::is_same<
          decltype(&Dataset::get_batch),
          std::vector<typename Dataset::ExampleType> (
              torch::data::datasets::
                  Dataset<Dataset, typename Dataset::ExampleType>::*)(
              c10::ArrayRef<size_t>)> {};

template <typename Transform, typename = void>
struct IsPerSampleTransform : std::false_type {};
template <typename Transform>
struct IsPerSampleTransform<
    Transform,
    std::void_t<
        typename Transform::InputType,
        typename Transform::OutputType,
        decltype(&Transform::apply_batch)>>
    : std::is_same<
          decltype(&Transform::apply_batch),
          std::vector<typename Transform::OutputType> (
              torch::data::transforms::Transform<
                  typename Transform::InputType,
                  typename Transform::OutputType>::*)(
              std::vector<typename Transform::InputType>)> {};

template <typename Dataset, typename Transform>
struct IsPerSample<torch::data::datasets::MapDataset<Dataset, Transform>>
    : std::conjunction<IsPerSample<Dataset>, IsPerSampleTransform<Transform>> {
};

/// The source type for a `Dataset` and the type of its batch requests.
template <typename Dataset, typename Request, typename = void>
struct SourceOf {
  using type = BatchSource<Dataset, Request>;
  static const Dataset& samples(Dataset& dataset) {
    return dataset;
  }
};

template <typename Dataset, typename Example>
struct SourceOf<
    torch::data::datasets::
        MapDataset<Dataset, torch::data::transforms::Stack<Example>>,
    std::vector<size_t>,
    std::enable_if_t<
        IsPerSample<Dataset>::value &&
        (std::is_same_v<Example, torch::data::Example<>> ||
         std::is_same_v<Example, torch::data::TensorExample>)>> {
  using type = StackedSource<Dataset, Example>;
  template <typename Mapped>
  static const Dataset& samples(Mapped& dataset) {
    return dataset.dataset();
  }
};

} // namespace ddp::detail
