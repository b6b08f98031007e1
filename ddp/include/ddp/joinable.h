#pragma once

#include <ddp/export.h>
#include <cstdint>
#include <optional>

namespace ddp {

class Join;

/// One call of `Joinable::announce` while a `Join` lives, the same on all
/// ranks.
struct JoinStep {
  /// What the ranks that have inputs are about to do, as they passed it.
  int64_t call = 0;
  /// How many ranks have inputs, and the highest of them.
  int64_t live = 1;
  int64_t last_live = 0;
  /// What means are to be divided by: the size of the group or, without
  /// `divide_by_initial_world_size`, `live`.
  int64_t divisor = 1;
};

/// Something that communicates in each step, in which ranks without inputs have
/// to take part: a Reducer, a sharded optimizer, a program's own collectives.
///
/// Derive from it, call `announce` right before the collectives, and have
/// `shadow` call the same collectives with neutral values. Source: the meaning
/// is that of torch/distributed/algorithms/join.py.
class DDP_API Joinable {
 public:
  Joinable() = default;
  Joinable(const Joinable&) = delete;
  Joinable& operator=(const Joinable&) = delete;
  virtual ~Joinable();

 protected:
  /// To be called before the collectives of each step: tells the ranks without
  /// inputs to call theirs. `call`, not negative, tells several kinds apart.
  /// Nothing, at no cost, unless a `Join` of this object lives. Collective then
  /// over the `Join`'s group. Throws `EarlyTermination` where a rank's inputs
  /// have ended and `throw_on_early_termination` is set, and `c10::Error` where
  /// other ranks announce something else.
  std::optional<JoinStep> announce(int64_t call = 0);

  /// Whether a `Join` of this object lives that lets all ranks throw as soon as
  /// the inputs of one have ended.
  bool throws_early() const;

  /// Whether a `Join` of this object lives in which the collectives of another
  /// one may begin before this one's end; both overlap (see below). Then
  /// `complete_shadow` is called when the next `announce` comes, so what
  /// communicates at the end needs one of its own.
  bool shares_steps() const;

  /// Called on each rank without inputs where the others call `announce`.
  virtual void shadow(const JoinStep& step) = 0;

  /// Whether `shadow` only starts collectives, which `complete_shadow` waits
  /// for: where others may begin before they end, as Reducers do that share a
  /// backward.
  virtual bool overlaps() const {
    return false;
  }
  virtual void complete_shadow() {}

  /// Called on all ranks when the last one has joined. `root` had inputs as
  /// long as any other.
  virtual void end_join(int64_t /*root*/) {}

 private:
  friend class Join;
  Join* join_ = nullptr;
};

} // namespace ddp
