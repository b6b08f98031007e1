#include <samplers/sharded_sampler.h>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <algorithm>

namespace ddp {
namespace {

using State = torch::OrderedDict<std::string, at::Tensor>;

void insert(State& state, const std::string& name, int64_t value) {
  state.insert(name, at::scalar_tensor(value, at::kLong));
}

int64_t value_of(const State& state, const std::string& name) {
  const auto* value = state.find(name);
  TORCH_CHECK_VALUE(
      value && value->numel() == 1 && value->scalar_type() == at::kLong,
      "load_state_dict: this is no state of a sampler: it has no int64 '",
      name,
      "'");
  return value->item<int64_t>();
}

} // namespace

ShardedSampler::ShardedSampler(
    const char* name,
    size_t length,
    int64_t num_replicas,
    int64_t rank,
    Remainder remainder)
    : name_(name),
      length_(length),
      num_replicas_(static_cast<size_t>(num_replicas)),
      rank_(static_cast<size_t>(rank)),
      remainder_(remainder) {
  TORCH_CHECK_VALUE(
      num_replicas >= 1,
      name,
      ": num_replicas is ",
      num_replicas,
      ", but there has to be at least one");
  TORCH_CHECK_VALUE(
      0 <= rank && rank < num_replicas,
      name,
      ": Invalid rank ",
      rank,
      ", rank should be in the interval [0, ",
      num_replicas - 1,
      "]");
  TORCH_CHECK_VALUE(
      length > 0,
      name,
      ": there are no samples to draw from; is the dataset empty, or its path "
      "wrong?");
  size_ = share_of(length);
}

void ShardedSampler::set_epoch(int64_t epoch) {
  if (epoch != progress_->epoch) {
    *progress_ = {};
    progress_->epoch = epoch;
  }
}

int64_t ShardedSampler::epoch() const {
  return progress_->epoch;
}

size_t ShardedSampler::size() const {
  return size_;
}

/// This rank's part of what is left of the sequence.
size_t ShardedSampler::share_of(size_t rest) const {
  const auto each = rest / num_replicas_;
  const auto left = rest % num_replicas_;
  switch (remainder_) {
    case Remainder::kRepeat:
      return each + (left > 0);
    case Remainder::kDrop:
      return each;
    default:
      return each + (rank_ < left);
  }
}

void ShardedSampler::reset(std::optional<size_t> new_size) {
  length_ = new_size.value_or(length_);
  auto& progress = *progress_;
  if (!progress.resumes) {
    progress.start = 0;
  }
  progress.resumes = false;
  progress.drawn = 0;
  progress.done = 0;
  drawn_epoch_ = progress.epoch;
  start_ = std::min(progress.start, length_);
  size_ = share_of(length_ - start_);
  position_ = 0;
  drawn_ = false;
}

std::optional<std::vector<size_t>> ShardedSampler::next(size_t batch_size) {
  if (position_ == size_) {
    return std::nullopt;
  }
  draw();
  const auto first = indices_.begin() + static_cast<ptrdiff_t>(position_);
  const auto count = std::min(batch_size, size_ - position_);
  position_ += count;
  progress_->drawn = position_;
  progress_->resumes = false;
  return std::vector<size_t>(first, first + static_cast<ptrdiff_t>(count));
}

void ShardedSampler::advance(size_t count) {
  TORCH_CHECK_VALUE(
      progress_->done + count <= progress_->drawn,
      name_,
      ": advance(",
      count,
      ") after ",
      progress_->done,
      " samples, but only ",
      progress_->drawn,
      " were drawn since the epoch began");
  progress_->done += count;
}

State ShardedSampler::state_dict() const {
  const auto& progress = *progress_;
  TORCH_CHECK(
      progress.done > 0 || progress.drawn == 0,
      name_,
      ": ",
      progress.drawn,
      " samples were drawn, but nobody said how many the loop is done with: "
      "call advance(samples in the batch) in each step");
  State state;
  insert(state, "epoch", progress.epoch);
  insert(
      state,
      "samples_done",
      static_cast<int64_t>(
          std::min(progress.start + progress.done * num_replicas_, length_)));
  insert(state, "length", static_cast<int64_t>(length_));
  for (const auto& entry : identity()) {
    insert(state, entry.key(), entry.value());
  }
  return state;
}

void ShardedSampler::load_state_dict(const State& state) {
  const auto expect = [&](const std::string& name, int64_t value) {
    const auto saved = value_of(state, name);
    TORCH_CHECK_VALUE(
        saved == value,
        name_,
        ": the saved state is of another sequence: ",
        name,
        " was ",
        saved,
        " there and is ",
        value,
        " here");
  };
  expect("length", static_cast<int64_t>(length_));
  for (const auto& entry : identity()) {
    expect(entry.key(), entry.value());
  }
  const auto done = value_of(state, "samples_done");
  TORCH_CHECK_VALUE(
      0 <= done && static_cast<size_t>(done) <= length_,
      name_,
      ": the saved state says that ",
      done,
      " of ",
      length_,
      " samples are done");
  Progress progress;
  progress.epoch = value_of(state, "epoch");
  progress.start = static_cast<size_t>(done);
  progress.resumes = true;
  *progress_ = progress;
  reset();
  progress_->resumes = true; // for the loader's copy
}

void ShardedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", c10::IValue(drawn_epoch_));
  archive.write("start", c10::IValue(static_cast<int64_t>(start_)));
  archive.write("position", c10::IValue(static_cast<int64_t>(position_)));
}

void ShardedSampler::load(torch::serialize::InputArchive& archive) {
  c10::IValue epoch, start, position;
  archive.read("epoch", epoch);
  archive.read("start", start);
  archive.read("position", position);
  const auto begin =
      std::clamp<int64_t>(start.toInt(), 0, static_cast<int64_t>(length_));
  const auto samples =
      static_cast<int64_t>(share_of(length_ - static_cast<size_t>(begin)));
  TORCH_CHECK(
      start.toInt() == begin && 0 <= position.toInt() &&
          position.toInt() <= samples,
      name_,
      ": the saved position is ",
      position.toInt(),
      ", but this rank draws ",
      samples,
      " samples in an epoch; load into a sampler of the same dataset, number "
      "of ranks and options");
  *progress_ = {};
  progress_->epoch = epoch.toInt();
  progress_->start = static_cast<size_t>(begin);
  progress_->resumes = true;
  reset();
  position_ = static_cast<size_t>(position.toInt());
  progress_->drawn = position_;
}

void ShardedSampler::draw() {
  if (drawn_) {
    return;
  }
  const auto order = sequence(length_, drawn_epoch_);
  const auto* source =
      order.defined() ? order.const_data_ptr<int64_t>() : nullptr;
  indices_.resize(size_);
  for (size_t i = 0; i < size_; ++i) {
    // Positions past the end are the padding: the order repeated.
    const auto place = (start_ + rank_ + i * num_replicas_) % length_;
    indices_[i] = source ? static_cast<size_t>(source[place]) : place;
  }
  drawn_ = true;
}

} // namespace ddp
