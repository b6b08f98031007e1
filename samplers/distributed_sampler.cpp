#include <samplers/distributed_sampler.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randperm.h>
#include <c10/util/Exception.h>
#include <ddp/process_group.h>
#include <torch/serialize/archive.h>

#include <algorithm>

namespace ddp {
namespace {

at::Tensor dataset_order(
    size_t dataset_size,
    int64_t epoch,
    const SamplerOptions& options) {
  const auto size = static_cast<int64_t>(dataset_size);
  const auto int64_cpu = at::TensorOptions(at::kLong).device(at::kCPU);
  if (!options.shuffle()) {
    return at::arange(size, int64_cpu);
  }
  auto generator = at::detail::createCPUGenerator(
      options.seed() + static_cast<uint64_t>(epoch));
  return at::randperm(size, std::move(generator), int64_cpu);
}

} // namespace

DistributedSampler::DistributedSampler(
    size_t size,
    const ProcessGroup& group,
    const SamplerOptions& options)
    : DistributedSampler(size, group.size(), group.rank(), options) {}

DistributedSampler::DistributedSampler(
    size_t size,
    int64_t num_replicas,
    int64_t rank,
    const SamplerOptions& options)
    : dataset_size_(size),
      num_replicas_(static_cast<size_t>(num_replicas)),
      rank_(static_cast<size_t>(rank)),
      options_(options) {
  TORCH_CHECK_VALUE(
      num_replicas >= 1,
      "DistributedSampler: num_replicas is ",
      num_replicas,
      ", but there has to be at least one");
  TORCH_CHECK_VALUE(
      0 <= rank && rank < num_replicas,
      "DistributedSampler: Invalid rank ",
      rank,
      ", rank should be in the interval [0, ",
      num_replicas - 1,
      "]");
  draw();
}

void DistributedSampler::set_epoch(int64_t epoch) {
  *epoch_ = epoch;
}

int64_t DistributedSampler::epoch() const {
  return *epoch_;
}

size_t DistributedSampler::size() const {
  const bool uneven = dataset_size_ % num_replicas_ != 0;
  return dataset_size_ / num_replicas_ + (uneven && !options_.drop_last());
}

void DistributedSampler::reset(std::optional<size_t> new_size) {
  dataset_size_ = new_size.value_or(dataset_size_);
  draw();
}

std::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  if (position_ == indices_.size()) {
    return std::nullopt;
  }
  const auto first = indices_.begin() + static_cast<ptrdiff_t>(position_);
  const auto count = std::min(batch_size, indices_.size() - position_);
  position_ += count;
  return std::vector<size_t>(first, first + static_cast<ptrdiff_t>(count));
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", c10::IValue(drawn_epoch_));
  archive.write("position", c10::IValue(static_cast<int64_t>(position_)));
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  c10::IValue epoch, position;
  archive.read("epoch", epoch);
  archive.read("position", position);
  const auto samples = static_cast<int64_t>(size());
  TORCH_CHECK(
      0 <= position.toInt() && position.toInt() <= samples,
      "DistributedSampler: the saved position is ",
      position.toInt(),
      ", but this rank draws ",
      samples,
      " samples in an epoch; load into a sampler of the same dataset, number "
      "of ranks and options");
  set_epoch(epoch.toInt());
  draw();
  position_ = static_cast<size_t>(position.toInt());
}

void DistributedSampler::draw() {
  const auto order = dataset_order(dataset_size_, epoch(), options_);
  const auto* source = order.const_data_ptr<int64_t>();
  indices_.resize(size());
  for (size_t i = 0; i < indices_.size(); ++i) {
    // Positions past the end are the padding: the order repeated.
    indices_[i] = static_cast<size_t>(
        source[(rank_ + i * num_replicas_) % dataset_size_]);
  }
  drawn_epoch_ = epoch();
  position_ = 0;
}

} // namespace ddp
