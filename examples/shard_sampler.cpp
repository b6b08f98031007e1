#include "shard_sampler.h"

#include <ddp/process_group.h>
#include <ddp/random.h>
#include <torch/types.h>

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <numeric>
#include <utility>

ShardSampler::ShardSampler(
    std::vector<size_t> shard_sizes,
    const ddp::ProcessGroup& group,
    uint64_t seed)
    : shard_sizes_(std::move(shard_sizes)),
      seed_(seed),
      shards_(
          shard_sizes_.size(),
          /*num_replicas=*/1,
          /*rank=*/0,
          ddp::SamplerOptions().seed(seed)) {
  const auto total =
      std::accumulate(shard_sizes_.begin(), shard_sizes_.end(), size_t(0));
  size_ = total / group.size();
  start_ = size_ * group.rank();
  TORCH_CHECK_VALUE(
      size_ > 0,
      "ShardSampler: ",
      total,
      " records are too few for ",
      group.size(),
      " ranks");
}

void ShardSampler::set_epoch(int64_t epoch) {
  shards_.set_epoch(epoch);
}

size_t ShardSampler::size() const {
  return size_;
}

void ShardSampler::reset(std::optional<size_t> /*new_size*/) {
  epoch_ = shards_.epoch();
  shards_.reset();
  order_ = *shards_.next(shard_sizes_.size());
  size_t place = 0;
  size_t skipped = start_;
  while (skipped >= shard_sizes_[order_[place]]) {
    skipped -= shard_sizes_[order_[place++]];
  }
  enter(place);
  next_ = skipped;
  left_ = size_;
}

/// Draws the records of the shard at `place` in the order of shards.
void ShardSampler::enter(size_t place) {
  place_ = place;
  next_ = 0;
  const auto shard = order_[place];
  const auto first = std::accumulate(
      shard_sizes_.begin(), shard_sizes_.begin() + shard, size_t(0));
  // Two ranks that have parts of one shard draw the same order.
  auto generator = at::make_generator<at::CPUGeneratorImpl>(
      ddp::sample_seed(seed_, epoch_, shard));
  const auto order = torch::randperm(
      static_cast<int64_t>(shard_sizes_[shard]), generator, torch::kLong);
  const auto* positions = order.const_data_ptr<int64_t>();
  records_.resize(order.numel());
  std::transform(
      positions, positions + order.numel(), records_.begin(), [&](int64_t p) {
        return first + static_cast<size_t>(p);
      });
}

std::optional<std::vector<size_t>> ShardSampler::next(size_t batch_size) {
  std::vector<size_t> batch;
  while (batch.size() < batch_size && left_ > 0) {
    while (next_ == records_.size()) {
      enter(place_ + 1);
    }
    batch.push_back(records_[next_++]);
    --left_;
  }
  return batch.empty() ? std::nullopt : std::make_optional(std::move(batch));
}

void ShardSampler::save(torch::serialize::OutputArchive& /*archive*/) const {
  C10_THROW_ERROR(NotImplementedError, "ShardSampler cannot be saved");
}

void ShardSampler::load(torch::serialize::InputArchive& /*archive*/) {
  C10_THROW_ERROR(NotImplementedError, "ShardSampler cannot be loaded");
}
