#pragma once

#include <c10/util/Exception.h>
#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace ddp {

/// Batches of one size from another sampler, whatever the data loader asks for,
/// as Python's `BatchSampler`: where the batch belongs to how samples are
/// chosen, not to the loader's options.
///
/// The last batch of an epoch may be smaller, or is left out with `drop_last`
/// (the loader's own `drop_last` has to be off). `Base` is a sampler of
/// indices, such as `DistributedSampler`; as a copy of it, it shares its epoch.
template <typename Base>
class BatchSampler : public torch::data::samplers::Sampler<> {
 public:
  /// Throws `c10::ValueError` where `batch_size` is 0.
  BatchSampler(Base base, size_t batch_size, bool drop_last)
      : base_(std::move(base)), batch_size_(batch_size), drop_last_(drop_last) {
    TORCH_CHECK_VALUE(batch_size > 0, "BatchSampler: batch_size is 0");
  }

  void reset(std::optional<size_t> new_size = std::nullopt) override {
    base_.reset(new_size);
  }

  /// The next batch; `batch_size` is not looked at.
  std::optional<std::vector<size_t>> next(size_t /*batch_size*/ = 0) override {
    auto batch = base_.next(batch_size_);
    if (batch && drop_last_ && batch->size() < batch_size_) {
      return std::nullopt;
    }
    return batch;
  }

  /// What `Base` has of these; see `ShardedSampler`.
  void set_epoch(int64_t epoch) {
    base_.set_epoch(epoch);
  }
  auto epoch() const {
    return base_.epoch();
  }
  template <typename B = Base>
  auto advance(size_t count) -> decltype(std::declval<B&>().advance(count)) {
    base_.advance(count);
  }
  auto state_dict() const {
    return base_.state_dict();
  }
  template <typename State>
  void load_state_dict(const State& state) {
    base_.load_state_dict(state);
  }
  template <typename State, typename B = Base>
  auto plan_state_dict(const State& state)
      -> decltype(std::declval<B&>().plan_state_dict(state)) {
    return base_.plan_state_dict(state);
  }

  void save(torch::serialize::OutputArchive& archive) const override {
    base_.save(archive);
  }
  void load(torch::serialize::InputArchive& archive) override {
    base_.load(archive);
  }

 private:
  Base base_;
  size_t batch_size_;
  bool drop_last_;
};

} // namespace ddp
