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
/// library's samplers. Ranks agree as they compute the same. Constructors with
/// a group compare what was given over ranks, which construct the same samplers
/// in one order, and wait for nobody: where it differs all throw
/// `c10::ValueError` with one text, some in their next wait on the group.
///
/// `torch::data::make_data_loader` copies its sampler. Copies share the epoch
/// and how far the training loop is, so what is told to the one that the
/// program holds reaches the loader's; each has its own order and position. So
/// a loop inside another one needs a sampler of its own. One copy is not safe
/// to use from several threads at once; different copies are.
///
/// **Resuming amid an epoch.** Workers fetch ahead of the loop, so that only
/// the loop knows how far it is: it says so with `advance`. What `state_dict`
/// holds then is rank 0's for all, since ranks take their steps together, and
/// valid for any number of ranks: the rest of the epoch is shared out anew.
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
  using State = torch::OrderedDict<std::string, at::Tensor>;

  /// Sets the epoch, in all copies, whose order the next `reset()` draws, as a
  /// data loader's `begin()` does: call this before each loop over the loader,
  /// or every epoch has the same order. Another epoch begins at its start.
  void set_epoch(int64_t epoch);

  /// The epoch last set or loaded; 0 at first.
  int64_t epoch() const;

  /// How many samples this rank draws in the epoch, or the rest of it.
  size_t size() const;

  /// Begins the epoch, over `new_size` samples if given; if a state was loaded,
  /// resumes from it, until the loop has seen the epoch's end.
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  /// The next `batch_size` indices, fewer at the end, then nothing. Throws
  /// `c10::Error` if a copy began another loop and the program uses `advance`.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  /// Says that the loop is done with `count` more samples of this rank. Throws
  /// `c10::ValueError` if that is more than it was given.
  void advance(size_t count);

  /// Where the loop is: the epoch, and how many samples of its sequence all
  /// ranks are done with; and what the sequence depends on. Tensors of int64
  /// without dimensions, and the sampler's name in bytes. Throws `c10::Error`
  /// if samples were drawn and `advance` was never called.
  State state_dict() const;

  /// Resumes from `state`, on any number of ranks. Throws `c10::ValueError` if
  /// it is not a state, or of another sequence (kind of sampler, size, seed,
  /// ...).
  void load_state_dict(const State& state);

  /// Checks a state as `load_state_dict` does; what it returns loads it.
  std::function<void()> plan_state_dict(const State& state);

  /// Stores the epoch of the current order and the position in it: what this
  /// rank drew, which workers may have fetched ahead of the loop.
  void save(torch::serialize::OutputArchive& archive) const override;

  /// Resumes if `save` was called, in a sampler of the same sequence, ranks and
  /// options, at once or after one `reset` (in a copy too). What was drawn
  /// counts as done. Throws `c10::Error` if the position lies beyond the end.
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  /// Where the ranks do not divide the sequence.
  enum class Remainder {
    kRepeat, ///< its head comes again, until they do
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
  /// sampler is of another kind or sequence; else waits for no one.
  void check_same(const ProcessGroup& group) const;

  // No move: what a loader was given goes on to take `set_epoch`.
  ShardedSampler(const ShardedSampler&) = default;
  ShardedSampler& operator=(const ShardedSampler&) = default;

  /// The sequence of an epoch: int64 of shape [length] on the CPU, or int32,
  /// which takes half the memory. Undefined, as it is unless overridden, stands
  /// for `first_index`, the one after it, ..., which takes none.
  virtual at::Tensor sequence(size_t length, int64_t epoch) const;

  /// Where an undefined sequence begins; 0 unless overridden.
  virtual size_t first_index(size_t length, int64_t epoch) const;

  /// What else the sequence depends on, for `state_dict`; nothing by default.
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
