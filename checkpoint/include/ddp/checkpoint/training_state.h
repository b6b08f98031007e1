#pragma once

#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/checkpoint/internal/training_part.h>
#include <ddp/internal/export.h>
#include <ddp/process_group.h>
#include <ddp/random.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ddp {

/// What a training run consists of, by name, to be saved and loaded together:
///
/// ```
/// ddp::TrainingState state;
/// state.add("model", net).add("optimizer", optimizer).add("epoch", epoch);
/// state.add("sampler", sampler).add_random_state();
/// state.load("run.pt", group);      // where there is one: the run goes on
/// ...
///   state.save("run.pt", group);    // now and then
/// ```
///
/// It refers to its parts, which have to live as long. A name can be used once.
class DDP_API TrainingState {
 public:
  /// A module, wrapped or plain: its parameters and buffers by Python's names.
  TrainingState& add(const std::string& name, torch::nn::Module& module);
  template <typename Module>
  TrainingState& add(
      const std::string& name,
      const std::shared_ptr<Module>& module) {
    return add(name, static_cast<torch::nn::Module&>(*module));
  }
  template <typename Module>
  TrainingState& add(
      const std::string& name,
      const torch::nn::ModuleHolder<Module>& module) {
    return add(name, module.ptr());
  }

  /// An optimizer of LibTorch's; see `optimizer_state`.
  TrainingState& add(
      const std::string& name,
      torch::optim::Optimizer& optimizer);

  /// A scheduler: how many steps it has made (learning rates are part of the
  /// optimizer's state), or of one that follows a metric the best value seen
  /// and its counters, by Python's names.
  TrainingState& add(
      const std::string& name,
      torch::optim::LRScheduler& scheduler);
  TrainingState& add(
      const std::string& name,
      torch::optim::ReduceLROnPlateauScheduler& scheduler);

  /// A variable of the program's: a number, a bool, a text, or a tensor, which
  /// loading replaces by another one. Rank 0's is saved, for all ranks.
  template <typename Number>
  std::enable_if_t<std::is_arithmetic_v<Number>, TrainingState&> add(
      const std::string& name,
      Number& value);
  TrainingState& add(const std::string& name, std::string& value);
  TrainingState& add(const std::string& name, at::Tensor& tensor);

  /// Anything with `state_dict()`, which may be collective, and
  /// `load_state_dict(state)`, such as a sampler, if the state is a `StateDict`
  /// or a `c10::IValue`. A part that also has `plan_state_dict(state)`, which
  /// checks a state and returns a `std::function<void()>` that loads it, is
  /// loaded only if all fits. What a Reducer's communication hook has of each
  /// rank's own is a part besides, "<name>_of_each_rank", which files without
  /// it are loaded without.
  template <
      typename Stateful,
      typename = decltype(std::declval<Stateful&>().state_dict())>
  TrainingState& add(const std::string& name, Stateful& part);

  /// LibTorch's generators, of each rank (`random_state`). On another number of
  /// ranks those that were saved resume theirs, and each further rank begins a
  /// stream of its own, derived from rank 0's, and a warning says so; if all
  /// ranks' were equal, as after `manual_seed`, they stay so.
  TrainingState& add_random_state(const std::string& name = "random_state");

  /// A generator of the standard library's (`std::mt19937`), of each rank; as
  /// `add_random_state` on another number of ranks.
  template <typename Generator>
  TrainingState& add_generator(const std::string& name, Generator& generator);

  /// Writes all parts to the file at `path`, which is replaced as a whole or
  /// not at all: `.pt`, Python's zip format, of which its `torch.load` makes a
  /// dictionary, or `.safetensors` (see `write_checkpoint_file`).
  ///
  /// Collective: rank 0 writes; every rank returns when the file is on the
  /// disk, or throws `c10::Error` with the reason. Throws `c10::ValueError` for
  /// another extension, and warns of different paths; rank 0's counts.
  void save(const std::string& path, const ProcessGroup& group = {}) const;

  /// Reads what `save`, or Python, wrote into all parts; returns false if there
  /// is no such file.
  ///
  /// Collective: rank 0 reads and sends the others a copy, unless `options` say
  /// otherwise. Every rank throws the same `c10::Error` if ranks give different
  /// paths, or the file is corrupt or does not fit on one of them; then nothing
  /// has changed on any, but for parts of the program's own. All of the file is
  /// in each rank's memory on the CPU meanwhile, and nothing but the state
  /// itself on a device.
  bool load(
      const std::string& path,
      const ProcessGroup& group = {},
      const LoadOptions& options = {});

  /// A dictionary of the parts' states by name, in the order in which they were
  /// added. Collective: throws `c10::Error` on every rank if a part's
  /// `state_dict` throws on one, and `c10::ValueError` if ranks have different
  /// parts, or their samplers different epochs.
  c10::IValue state_dict(const ProcessGroup& group = {}) const;

  /// Puts all parts into the state that `state_dict` returned, here or in
  /// another run. Throws `c10::Error` if a part is missing or does not fit;
  /// then nothing has changed, but for parts of the program's own that have no
  /// `plan_state_dict`. Extra keys are ignored. Not collective.
  void load_state_dict(
      const c10::IValue& state,
      const ProcessGroup& group = {});

 private:
  friend class CheckpointManager;
  friend class ElasticRun;
  TrainingState& add_part(detail::TrainingPart part);

  /// `load` from a file that is there. `read`: what rank 0 has read of it
  /// already, if it has.
  void load_file(
      const std::string& path,
      const ProcessGroup& group,
      const LoadOptions& options,
      std::optional<c10::IValue> read = std::nullopt);

  std::vector<detail::TrainingPart> parts_;
};

} // namespace ddp

#include <ddp/checkpoint/internal/training_state-inl.h>
