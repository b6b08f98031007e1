#pragma once

// What a TrainingState consists of.
#include <ATen/core/ivalue.h>
#include <ddp/internal/export.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
template <typename Contained>
class ModuleHolder;
} // namespace torch::nn
namespace torch::optim {
class LRScheduler;
class Optimizer;
class ReduceLROnPlateauScheduler;
} // namespace torch::optim

namespace ddp {

class ProcessGroup;

namespace detail {

using Commit = std::function<void()>;

/// Checks a state; what it returns puts it in.
using Plan = std::function<Commit(const c10::IValue&)>;

struct TrainingPart {
  std::string name;
  std::function<c10::IValue()> save;
  std::function<Commit(const c10::IValue&, const ProcessGroup&)> load;
  /// Each rank's own is kept, in a list.
  bool per_rank = false;
  /// Whether a state may lack it.
  bool optional = false;
  /// Whether `save` may communicate.
  bool collective = false;
  /// Whether what `save` returns is whole on one rank alone.
  bool sharded = false;
  /// Where it is one whose parameters are the same on all ranks; else null.
  const torch::nn::Module* module = nullptr;
  const torch::optim::Optimizer* optimizer = nullptr;
  /// Where it has one, which is the same on all ranks when it is saved.
  std::function<int64_t()> epoch = nullptr;
  /// Whether `load` checks nothing, so that what it returns may throw.
  bool unchecked = false;
};

/// One of which rank 0's state serves all.
DDP_API TrainingPart local_part(
    const std::string& name,
    std::function<c10::IValue()> save,
    Plan load);

/// One that each rank has of its own. `derive` makes a state for a rank that
/// none was saved for out of a seed; without it, nothing is loaded on another
/// number of ranks.
DDP_API TrainingPart per_rank_part(
    const std::string& name,
    std::function<c10::IValue()> save,
    Plan load,
    std::function<Commit(uint64_t)> derive = nullptr);

/// What loads a state that fits.
struct Commits {
  std::vector<Commit> unchecked; // to be run first
  std::vector<Commit> checked;
};

/// The parts' states by name: a dict. Collective; see
/// `TrainingState::state_dict`.
c10::IValue save_parts(
    const std::vector<TrainingPart>& parts,
    const ProcessGroup& group);

/// Checks that a state has what all parts need. Throws `c10::Error`.
Commits plan_parts(
    const std::vector<TrainingPart>& parts,
    const c10::IValue& state,
    const ProcessGroup& group);

} // namespace detail
} // namespace ddp
