#include <ddp/samplers/sharded_sampler.h>

#include <ATen/ATen.h>
#include <ddp/internal/check.h>
#include <ddp/internal/text_tensor.h>
#include <ddp/process_group/agreement/same_on_all.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <mutex>

namespace ddp {
namespace {

using State = ShardedSampler::State;

void insert(State& state, const std::string& name, int64_t value) {
  state.insert(name, at::scalar_tensor(value, at::kLong));
}

int64_t value_of(const State& state, const std::string& name) {
  const auto* value = state.find(name);
  DDP_CHECK_VALUE(
      value && value->numel() == 1 && value->scalar_type() == at::kLong,
      "load_state_dict: invalid sampler state: it has no int64 '{}'",
      name);
  return value->item<int64_t>();
}

} // namespace

struct DDP_LOCAL ShardedSampler::Progress {
  int64_t epoch = 0;
  // The number of samples in the sequence that were done before the last load.
  size_t start = 0;
  // The number of this rank's samples after `start` that `load` skips.
  size_t position = 0;
  // Whether a pass over this rank's samples after `start` has begun.
  bool begun = false;
  // The numbers of these samples that were drawn, and that the loop has used.
  size_t drawn = 0;
  size_t done = 0;
  // The size of the last batch that was drawn, if smaller than requested and
  // the loop may drop it.
  size_t tail = 0;
};

struct DDP_LOCAL ShardedSampler::Shared {
  std::mutex mutex;
  Progress progress;
  // The number of loops that began, over all copies.
  uint64_t loops = 0;
  // Whether the program has ever called `advance`.
  bool advances = false;
  // The last argument of `keep_last_batch`, if the program has called it.
  std::optional<bool> keeps_last_batch;
};

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
      remainder_(remainder),
      shared_(std::make_shared<Shared>()) {
  DDP_CHECK_VALUE(
      num_replicas >= 1,
      "{}: num_replicas is {}, expected 1 or more",
      name,
      num_replicas);
  DDP_CHECK_VALUE(
      0 <= rank && rank < num_replicas,
      "{}: Invalid rank {}, rank should be in the interval [0, {}]",
      name,
      rank,
      num_replicas - 1);
  DDP_CHECK_VALUE(
      length > 0,
      "{}: the number of samples is 0; is the dataset empty, or its "
      "path wrong?",
      name);
  order_.size = share_after(0);
}

void ShardedSampler::check_same(const ProcessGroup& group) const {
  auto text = c10::str(name_, " of ", length_, " samples");
  if (remainder_ != Remainder::kUneven) {
    text += c10::str(", drop_last ", remainder_ == Remainder::kDrop);
  }
  for (const auto& item : identity()) {
    text += c10::str(", ", item.key(), " ", item.value());
  }
  detail::check_same_on_all(
      group,
      "the sampler",
      text,
      "Construct the same samplers in the same order on all ranks; a sampler "
      "that only one rank uses needs num_replicas 1 and rank 0 instead of the "
      "group");
}

void ShardedSampler::set_epoch(int64_t epoch) {
  const std::lock_guard lock(shared_->mutex);
  auto& progress = shared_->progress;
  if (epoch != progress.epoch) {
    progress = {};
    progress.epoch = epoch;
  }
}

int64_t ShardedSampler::epoch() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->progress.epoch;
}

size_t ShardedSampler::size() const {
  return share_after(0);
}

/// The number of samples after `start` that this rank draws.
size_t ShardedSampler::share_after(size_t start) const {
  const auto rest = length_ - std::min(start, length_);
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

/// The place in the sequence of this rank's sample `position`.
size_t ShardedSampler::place(size_t position) const {
  // The padding beyond the end repeats the sequence.
  return (order_.start + rank_ + position * num_replicas_) % length_;
}

at::Tensor ShardedSampler::sequence(size_t /*length*/, int64_t /*epoch*/)
    const {
  return {};
}

size_t ShardedSampler::first_index(size_t /*length*/, int64_t /*epoch*/) const {
  return 0;
}

torch::OrderedDict<std::string, int64_t> ShardedSampler::identity() const {
  return torch::OrderedDict<std::string, int64_t>();
}

void ShardedSampler::reset(std::optional<size_t> new_size) {
  length_ = new_size.value_or(length_);
  const std::lock_guard lock(shared_->mutex);
  auto& progress = shared_->progress;
  // A resumed epoch lasts until the loop has seen its end.
  const auto seen = shared_->advances ? progress.done : progress.drawn;
  const auto share = share_after(progress.start);
  if (progress.begun && (seen == share || seen + progress.tail == share)) {
    progress.start = 0;
    progress.position = 0;
  }
  begin(progress);
  progress.begun = true;
}

void ShardedSampler::begin(Progress& progress) {
  order_.loop = ++shared_->loops;
  order_.epoch = progress.epoch;
  order_.start = std::min(progress.start, length_);
  order_.size = share_after(order_.start);
  order_.position = std::min(progress.position, order_.size);
  progress.drawn = order_.position;
  progress.done = order_.position;
  progress.tail = 0;
  order_.drawn = false;
}

void ShardedSampler::go_on_from(const Progress& progress) {
  const std::lock_guard lock(shared_->mutex);
  shared_->progress = progress;
  begin(shared_->progress);
}

std::optional<std::vector<size_t>> ShardedSampler::next(size_t batch_size) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->progress.begun = true;
    if (order_.position == 0) {
      order_.loop = ++shared_->loops;
    }
    DDP_CHECK(
        order_.loop == shared_->loops || !shared_->advances,
        "{}: a loop over a copy of this sampler began during this loop, so "
        "advance() is ambiguous: use a separate sampler for the inner loop",
        name_);
  }
  if (order_.position == order_.size) {
    return std::nullopt;
  }
  draw();
  std::vector<size_t> batch(
      std::min(batch_size, order_.size - order_.position));
  for (auto& index : batch) {
    const auto position = order_.position++;
    index = order_.indices.empty() ? order_.first + place(position)
                                   : order_.indices[position];
  }
  const std::lock_guard lock(shared_->mutex);
  shared_->progress.drawn = order_.position;
  const bool may_be_dropped =
      batch.size() < batch_size && !shared_->keeps_last_batch.value_or(false);
  shared_->progress.tail = may_be_dropped ? batch.size() : 0;
  return batch;
}

void ShardedSampler::advance(size_t count) {
  const std::lock_guard lock(shared_->mutex);
  auto& progress = shared_->progress;
  DDP_CHECK_VALUE(
      count <= progress.drawn - progress.done,
      "{}: advance({}) after {} samples, but only {} were drawn since the "
      "epoch began",
      name_,
      count,
      progress.done,
      progress.drawn);
  progress.done += count;
  shared_->advances = true;
}

void ShardedSampler::keep_last_batch(bool keeps) {
  const std::lock_guard lock(shared_->mutex);
  shared_->keeps_last_batch = keeps;
}

State ShardedSampler::state_dict() const {
  const std::lock_guard lock(shared_->mutex);
  const auto& progress = shared_->progress;
  DDP_CHECK(
      shared_->advances || progress.drawn == 0,
      "{}: {} samples were drawn, but the loop did not report how many it has "
      "processed: call advance(samples in the batch) in each step",
      name_,
      progress.drawn);
  // Fewer ranks must not draw the tail that these ranks have dropped.
  const auto tail =
      shared_->keeps_last_batch.value_or(true) ? 0 : progress.tail;
  const bool has_dropped = (remainder_ == Remainder::kDrop || tail > 0) &&
      (progress.begun || progress.done > 0) &&
      progress.done + tail == share_after(progress.start);
  const auto samples = has_dropped
      ? length_
      : std::min(progress.start + progress.done * num_replicas_, length_);
  State state;
  state.insert("sampler", detail::to_bytes(name_));
  insert(state, "epoch", progress.epoch);
  insert(state, "samples_done", static_cast<int64_t>(samples));
  insert(state, "length", static_cast<int64_t>(length_));
  for (const auto& entry : identity()) {
    insert(state, entry.key(), entry.value());
  }
  return state;
}

void ShardedSampler::load_state_dict(const State& state) {
  plan_state_dict(state)();
}

std::function<void()> ShardedSampler::plan_state_dict(const State& state) {
  const auto expect = [&](const std::string& name, int64_t value) {
    const auto saved = value_of(state, name);
    DDP_CHECK_VALUE(
        saved == value,
        "{}: the saved state belongs to another sequence: {} is {} in the "
        "state and {} in this sampler",
        name_,
        name,
        saved,
        value);
  };
  const auto* kind = state.find("sampler");
  DDP_CHECK_VALUE(
      kind && kind->scalar_type() == at::kByte,
      "load_state_dict: invalid sampler state: it has no string 'sampler'");
  DDP_CHECK_VALUE(
      detail::to_string(*kind) == name_,
      "{}: the state was saved by a {}",
      name_,
      detail::to_string(*kind));
  expect("length", static_cast<int64_t>(length_));
  for (const auto& entry : identity()) {
    expect(entry.key(), entry.value());
  }
  const auto done = value_of(state, "samples_done");
  DDP_CHECK_VALUE(
      0 <= done && static_cast<size_t>(done) <= length_,
      "{}: the saved number of processed samples is {}, expected 0 to {}",
      name_,
      done,
      length_);
  Progress progress;
  progress.epoch = value_of(state, "epoch");
  progress.start = static_cast<size_t>(done);
  return [this, progress] { go_on_from(progress); };
}

void ShardedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", c10::IValue(order_.epoch));
  archive.write("start", c10::IValue(static_cast<int64_t>(order_.start)));
  archive.write("position", c10::IValue(static_cast<int64_t>(order_.position)));
}

void ShardedSampler::load(torch::serialize::InputArchive& archive) {
  c10::IValue epoch, start, position;
  archive.read("epoch", epoch);
  archive.read("start", start);
  archive.read("position", position);
  const auto first =
      std::clamp<int64_t>(start.toInt(), 0, static_cast<int64_t>(length_));
  const auto samples =
      static_cast<int64_t>(share_after(static_cast<size_t>(first)));
  DDP_CHECK(
      start.toInt() == first && 0 <= position.toInt() &&
          position.toInt() <= samples,
      "{}: the saved position is {}, but this rank draws {} samples in an "
      "epoch; load into a sampler of the same dataset, number of ranks and "
      "options",
      name_,
      position.toInt(),
      samples);
  Progress progress;
  progress.epoch = epoch.toInt();
  progress.start = static_cast<size_t>(first);
  progress.position = static_cast<size_t>(position.toInt());
  go_on_from(progress);
}

void ShardedSampler::draw() {
  if (order_.drawn) {
    return;
  }
  auto order = sequence(length_, order_.epoch);
  if (order.defined()) {
    DDP_CHECK_VALUE(
        order.is_cpu() && order.dim() == 1 &&
            static_cast<size_t>(order.numel()) == length_ &&
            (order.scalar_type() == at::kLong ||
             order.scalar_type() == at::kInt),
        "{}: sequence() returned {}{}, expected an int64 or int32 tensor of "
        "shape [{}] on the CPU",
        name_,
        order.toString(),
        order.sizes(),
        length_);
    order = order.contiguous();
  }
  order_.first = first_index(length_, order_.epoch);
  order_.indices.resize(order.defined() ? order_.size : 0);
  const auto take = [&](const auto* source) {
    for (size_t i = 0; i < order_.indices.size(); ++i) {
      order_.indices[i] = static_cast<size_t>(source[place(i)]);
    }
  };
  if (order.defined() && order.scalar_type() == at::kInt) {
    take(order.const_data_ptr<int32_t>());
  } else if (order.defined()) {
    take(order.const_data_ptr<int64_t>());
  }
  order_.drawn = true;
}

} // namespace ddp
