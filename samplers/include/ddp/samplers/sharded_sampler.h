#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/internal/export.h>
#include <torch/data/samplers/base.h>
#include <torch/ordered_dict.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddp {

class ProcessGroup;

/// The base class of this library's samplers, which draw a rank's part of each
/// epoch's sequence of samples: rank `r` of `n` draws samples r, r + n, r + 2n,
/// ... All ranks must construct the same samplers in the same order.
/// Constructors with a group compare arguments across ranks, without waiting.
/// If arguments differ, all ranks throw `c10::ValueError` with the same text,
/// some ranks only in their next wait on the group.
///
/// `torch::data::make_data_loader` copies its sampler. Copies share the epoch
/// and the loop's progress, so calls on the program's sampler affect the
/// loader's copy. Each copy has its own order and position. An inner loop needs
/// a separate sampler. Threads may use different copies, but not the same copy.
///
/// **Resuming within an epoch.** Workers fetch ahead, so the loop must report
/// its progress with `advance`. `state_dict` then holds rank 0's progress for
/// all ranks, since ranks step together. The state is valid for any number of
/// ranks: the rest of the epoch is divided among them. For a save after the
/// inner loop, first call `set_epoch(epoch + 1)`; otherwise the finished epoch
/// is resumed, and ends immediately.
///
/// ```
/// sampler.load_state_dict(state);                      // to resume
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

  /// Sets the epoch, in all copies. The next `reset()`, which a loader's
  /// `begin()` calls, draws the order. Call `set_epoch` before each loop, or
  /// every epoch has the same order, and loops that end early always begin at a
  /// loaded position. A new epoch begins at its start.
  void set_epoch(int64_t epoch);
  /// The epoch that was last set or loaded; initially 0.
  int64_t epoch() const;
  /// This rank's number of samples in a whole epoch, also in a resumed one.
  size_t size() const;

  /// Begins the epoch, over `new_size` samples if given; other copies and their
  /// states keep their size. After a state was loaded, resumes until the loop
  /// has reached the epoch's end or a smaller last batch (LibTorch's loader may
  /// drop it; see `keep_last_batch`).
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  /// Returns the next `batch_size` indices, fewer at the end, then none. Throws
  /// `c10::Error` if another copy began a loop and the program uses `advance`.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  /// Reports that the loop has used `count` more samples of this rank. Throws
  /// `c10::ValueError` if the rank has not drawn that many samples.
  void advance(size_t count);
  /// States whether `advance` reports a smaller last batch too: a resumed epoch
  /// then does not end before it, and otherwise ends without it. `DataLoader`
  /// calls this method.
  void keep_last_batch(bool keeps = true);

  /// The loop's progress: the epoch, the number of samples that all ranks have
  /// used, and the parameters of the sequence. The tensors are int64 scalars,
  /// and the sampler's name in bytes. Throws `c10::Error` if samples were drawn
  /// and `advance` was never called. Not collective.
  State state_dict() const;

  /// Resumes from `state`, on any number of ranks. Throws `c10::ValueError` if
  /// the state is invalid or of a different sequence (kind, size, seed, ...).
  void load_state_dict(const State& state);
  /// Checks a state as `load_state_dict` does; returns a function to load it.
  std::function<void()> plan_state_dict(const State& state);

  /// Stores the epoch and this rank's position in it, including samples that
  /// workers have fetched ahead of the loop.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Resumes at a saved position, immediately or after one `reset` (also in a
  /// copy). Sequence, ranks and options must be the same. Drawn samples count
  /// as used. Throws `c10::Error` if the position is too large.
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  /// The action if the number of ranks does not divide the sequence's length.
  enum class Remainder {
    kRepeat, ///< Repeats the sequence's head.
    kDrop, ///< Drops the sequence's tail.
    kUneven, ///< Gives the first ranks one more sample.
  };

  /// Draws the part of `rank` among `num_replicas` of a sequence of `length`
  /// samples. `name` is the sampler's name, for messages. Throws
  /// `c10::ValueError` unless 0 <= rank < num_replicas and length > 0.
  ShardedSampler(
      const char* name,
      size_t length,
      int64_t num_replicas,
      int64_t rank,
      Remainder remainder);

  /// Called by constructors with a group. Throws `c10::ValueError` if another
  /// rank's sampler is known to differ; does not wait for other ranks.
  void check_same(const ProcessGroup& group) const;

  // No move: a sampler that was moved into a loader must remain usable.
  ShardedSampler(const ShardedSampler&) = default; ///< Shares the epoch.
  /// Shares the epoch.
  ShardedSampler& operator=(const ShardedSampler&) = default;

  /// The sequence of an epoch: an int64 tensor of shape [length] on the CPU, or
  /// int32, which takes half the memory. An undefined tensor, the default,
  /// means consecutive indices from `first_index`, which take no memory.
  virtual at::Tensor sequence(size_t length, int64_t epoch) const;

  /// The first index of an undefined sequence; 0 unless overridden.
  virtual size_t first_index(size_t length, int64_t epoch) const;

  /// Further parameters of the sequence, for `state_dict`; none by default.
  virtual torch::OrderedDict<std::string, int64_t> identity() const;

 private:
  /// The samples that a copy of a sampler draws in one loop, and the loop's
  /// progress.
  struct Order {
    int64_t epoch = 0;
    /// The position in the epoch's sequence, over all ranks, at which the loop
    /// began.
    size_t start = 0;
    size_t size = 0;
    /// The number of this loop among the loops of all copies.
    uint64_t loop = 0;
    /// Whether `first` and `indices` have been drawn.
    bool drawn = false;
    size_t first = 0;
    std::vector<size_t> indices; // empty if the sequence is undefined
    size_t position = 0;
  };
  struct Progress;
  struct Shared; // between copies

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
  Order order_;
};

} // namespace ddp
