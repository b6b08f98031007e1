#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/internal/export.h>
#include <ddp/samplers/internal/sample_order.h>
#include <torch/data/samplers/base.h>
#include <torch/ordered_dict.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace ddp {

class ProcessGroup;

/// A rank's part of one sequence of samples per epoch, which all ranks know:
/// rank `r` of `n` draws every n-th from the r-th on. The base of this
/// library's samplers. Ranks must construct the same samplers in one order:
/// constructors with a group compare their arguments over ranks, without
/// waiting. If arguments differ, all ranks throw `c10::ValueError` with one
/// text, some in their next wait on the group.
///
/// `torch::data::make_data_loader` copies its sampler. Copies share the epoch
/// and the loop's progress, so calls on the program's sampler reach the
/// loader's copy; each has its own order and position. An inner loop therefore
/// needs a separate sampler. One copy is not thread-safe; different copies are.
///
/// **Resuming within an epoch.** Workers fetch ahead, so only the loop knows
/// its progress, which it reports with `advance`. `state_dict` then holds rank
/// 0's for all, since ranks step together. The state is valid for any number of
/// ranks: the rest of the epoch is divided among them.
///
/// ```
/// sampler.load_state_dict(state);                      // to go on
/// for (auto epoch = sampler.epoch(); epoch < epochs; ++epoch) {
///   sampler.set_epoch(epoch);
///   for (auto& batch : *loader) {
///     ... sampler.advance(batch.data.size(0)); ... sampler.state_dict() ...
///   }
/// }
/// ```
class DDP_API ShardedSampler : public torch::data::samplers::Sampler<> {
 public:
  using State = torch::OrderedDict<std::string, at::Tensor>; ///< By name.

  /// Sets the epoch, in all copies. The next `reset()`, as by a loader's
  /// `begin()`, draws the order: call `set_epoch` before each loop, or every
  /// epoch has the same order. A new epoch begins at its start.
  void set_epoch(int64_t epoch);

  /// The epoch last set or loaded; 0 at first.
  int64_t epoch() const;

  /// The number of samples this rank draws in the (rest of the) epoch.
  size_t size() const;

  /// Begins the epoch, over `new_size` samples if given; resumes from a loaded
  /// state until the loop has seen the epoch's end.
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  /// The next `batch_size` indices, fewer at the end, then nothing. Throws
  /// `c10::Error` if a copy began another loop and the program uses `advance`.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  /// Reports that the loop is done with `count` more samples of this rank.
  /// Throws `c10::ValueError` if the rank was not given that many.
  void advance(size_t count);

  /// The loop's progress: the epoch, the number of samples of its sequence that
  /// all ranks are done with, and the parameters of the sequence. The tensors
  /// are int64 scalars, and the sampler's name in bytes. Throws `c10::Error` if
  /// samples were drawn and `advance` was never called. Not collective.
  State state_dict() const;

  /// Resumes from `state`, on any number of ranks. Throws `c10::ValueError` if
  /// `state` is invalid, or of another sequence (kind of sampler, size, seed,
  /// ...).
  void load_state_dict(const State& state);

  /// Checks a state as `load_state_dict` does; the returned function loads it.
  std::function<void()> plan_state_dict(const State& state);

  /// Stores the epoch and position of the current order: the samples that this
  /// rank drew, which workers may have fetched ahead of the loop.
  void save(torch::serialize::OutputArchive& archive) const override;

  /// Resumes where `save` was called, in a sampler of the same sequence, ranks
  /// and options, immediately or after one `reset` (also in a copy). Drawn
  /// samples count as done. Throws `c10::Error` if the position is too large.
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  /// If the number of ranks does not divide the sequence.
  enum class Remainder {
    kRepeat, ///< its head is repeated until they do
    kDrop, ///< its tail is left out
    kUneven, ///< the first ranks have one sample more
  };

  /// The part of `rank` among `num_replicas` of a sequence of `length` samples.
  /// Throws `c10::ValueError` unless 0 <= rank < num_replicas and length > 0;
  /// `name` is the sampler's, for messages.
  ShardedSampler(
      const char* name,
      size_t length,
      int64_t num_replicas,
      int64_t rank,
      Remainder remainder);

  /// For constructors with a group: throws `c10::ValueError` if another rank's
  /// sampler is of another kind or sequence; does not wait otherwise.
  void check_same(const ProcessGroup& group) const;

  // No move: a sampler that was passed to a loader still takes `set_epoch`.
  ShardedSampler(const ShardedSampler&) = default; ///< Shares the epoch.
  /// Shares the epoch.
  ShardedSampler& operator=(const ShardedSampler&) = default;

  /// The sequence of an epoch: int64 of shape [length] on the CPU, or int32,
  /// which takes half the memory. Undefined, the default, means `first_index`,
  /// the one after it, ..., which takes no memory.
  virtual at::Tensor sequence(size_t length, int64_t epoch) const;

  /// The first index of an undefined sequence; 0 unless overridden.
  virtual size_t first_index(size_t length, int64_t epoch) const;

  /// Further parameters of the sequence, for `state_dict`; none by default.
  virtual torch::OrderedDict<std::string, int64_t> identity() const;

 private:
  struct Progress;
  struct Shared; // by copies

  size_t share_after(size_t start) const;
  size_t place(size_t position) const;
  void begin(Progress& progress);
  void go_on_from(const Progress& progress);
  void draw();

  const char* name_;
  size_t length_;
  size_t num_replicas_;
  size_t rank_;
  Remainder remainder_;
  std::shared_ptr<Shared> shared_;
  detail::SampleOrder order_;
};

} // namespace ddp
