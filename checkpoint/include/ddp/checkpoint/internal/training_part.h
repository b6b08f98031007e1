#pragma once

// The parts of a TrainingState.
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

/// Checks a state, and returns a function that loads it.
using Plan = std::function<Commit(const c10::IValue&)>;

struct TrainingPart {
  std::string name;
  std::function<c10::IValue()> save;
  std::function<Commit(const c10::IValue&, const ProcessGroup&)> load;
  /// Whether every rank's state is saved, in a list.
  bool per_rank = false;
  /// Whether the part may be missing from a state.
  bool optional = false;
  /// Whether `save` may communicate.
  bool collective = false;
  /// Whether the result of `save` is complete on one rank only.
  bool sharded = false;
  /// The module, if its parameters are the same on all ranks; otherwise null.
  const torch::nn::Module* module = nullptr;
  const torch::optim::Optimizer* optimizer = nullptr;
  /// The epoch, if any; it must be the same on all ranks when the part is
  /// saved.
  std::function<int64_t()> epoch = nullptr;
  /// Whether `save` returns the state of a sampler, whose sequence must also be
  /// the same on all ranks.
  bool sampler = false;
  /// Whether `load` checks nothing, so that the returned function may throw.
  bool unchecked = false;
};

/// A part for which rank 0's state is loaded on all ranks.
DDP_API TrainingPart local_part(
    const std::string& name,
    std::function<c10::IValue()> save,
    Plan load);

/// A part with a separate state per rank. For a rank without a saved state,
/// `derive` returns a function that sets a state from a seed, unless several
/// states were saved and all are equal: then that state is loaded. If `derive`
/// is null, the part is loaded only on the number of ranks that saved it.
DDP_API TrainingPart per_rank_part(
    const std::string& name,
    std::function<c10::IValue()> save,
    Plan load,
    std::function<Commit(uint64_t)> derive = nullptr);

/// The functions that load the parts of a state.
struct Commits {
  std::vector<Commit> unchecked; // run these first
  std::vector<Commit> checked;
};

/// The parts' states by name: a dict. Collective; see
/// `TrainingState::state_dict`.
c10::IValue save_parts(
    const std::vector<TrainingPart>& parts,
    const ProcessGroup& group);

/// Checks that a state contains valid states of all parts, and returns the
/// functions that load them. Throws `c10::Error`.
Commits plan_parts(
    const std::vector<TrainingPart>& parts,
    const c10::IValue& state,
    const ProcessGroup& group);

} // namespace detail
} // namespace ddp
