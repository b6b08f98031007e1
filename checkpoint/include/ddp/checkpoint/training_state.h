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

/// The parts of a training run, by name, which are saved and loaded together:
///
/// ```
/// ddp::TrainingState state;
/// state.add("model", net).add("optimizer", optimizer).add("epoch", epoch);
/// state.add("sampler", sampler).add_random_state();
/// state.load("run.pt", group);   // resumes the run if the file exists
/// state.save("run.pt", group);   // regularly
/// ```
///
/// A `TrainingState` refers to its parts, which must outlive it. Adding a
/// second part with the same name throws `c10::ValueError`.
class DDP_API TrainingState {
 public:
  /// Adds a module, wrapped or plain: parameters and buffers by Python's names.
  /// Rank 0's values are saved for all ranks. Keep tensors that differ between
  /// ranks (`ReducerOptions::parameters_to_ignore`) out of the module: save
  /// them by an object with `rank_state_dict()`, see below.
  TrainingState& add(const std::string& name, torch::nn::Module& module);
  /// Adds the module that a pointer points to.
  template <typename Module>
  TrainingState& add(
      const std::string& name,
      const std::shared_ptr<Module>& module) {
    return add(name, static_cast<torch::nn::Module&>(*module));
  }
  /// Adds the module in a holder.
  template <typename Module>
  TrainingState& add(
      const std::string& name,
      const torch::nn::ModuleHolder<Module>& module) {
    return add(name, module.ptr());
  }

  /// Adds a LibTorch optimizer; see `optimizer_state`. Of a class derived from
  /// one, such as SGD, only the base's state is saved. Throws
  /// `c10::NotImplementedError` for other classes. A class with its own state
  /// needs `state_dict()` and `load_state_dict(state)`, see below.
  TrainingState& add(
      const std::string& name,
      torch::optim::Optimizer& optimizer);

  /// Adds a scheduler's number of steps; learning rates are the optimizer's.
  TrainingState& add(
      const std::string& name,
      torch::optim::LRScheduler& scheduler);
  /// Adds a plateau scheduler's best metric and counters, by Python's names.
  TrainingState& add(
      const std::string& name,
      torch::optim::ReduceLROnPlateauScheduler& scheduler);

  /// Adds a variable of the program: a number or a bool or, with the functions
  /// below, a string or a tensor. Rank 0's value is saved for all ranks. A
  /// number also loads from a tensor with one element.
  template <typename Number>
  std::enable_if_t<std::is_arithmetic_v<Number>, TrainingState&> add(
      const std::string& name,
      Number& value);
  /// Adds a string.
  TrainingState& add(const std::string& name, std::string& value);
  /// Adds a tensor. Loading replaces it with a new tensor, but copies values
  /// into a leaf that requires gradients, whose shape must fit.
  TrainingState& add(const std::string& name, at::Tensor& tensor);

  /// Adds an object with `state_dict()`, which may be collective unless it has
  /// `epoch()`, and `load_state_dict(state)`, such as a sampler. The state is a
  /// `StateDict` or a `c10::IValue`, whose lists lose their element type in a
  /// file (`toListRef()` reads any list). `plan_state_dict(state)`, if present,
  /// checks a state and returns a `std::function<void()>` that loads it; the
  /// part is then loaded only if all parts fit. `rank_state_dict()`, if
  /// present, returns a state on the CPU that differs between ranks, as a
  /// `c10::IValue` for `load_rank_state_dict(state)`: an additional part,
  /// "<name>_of_each_rank", which a file may lack, and which only the same
  /// number of ranks loads. A save gathers these states on each rank.
  template <
      typename Stateful,
      typename = decltype(std::declval<Stateful&>().state_dict())>
  TrainingState& add(const std::string& name, Stateful& part);

  /// Adds LibTorch's generators on each rank (`random_state`). If the number of
  /// ranks has changed, ranks with saved generators resume them. Other ranks
  /// begin new streams, derived from rank 0's stream, with a warning. If
  /// several ranks saved equal generators, as after `manual_seed`, the
  /// generators of all ranks stay equal.
  TrainingState& add_random_state(const std::string& name = "random_state");

  /// Adds a standard-library generator (`std::mt19937`) on each rank. See
  /// `add_random_state` for a changed number of ranks.
  template <typename Generator>
  TrainingState& add_generator(const std::string& name, Generator& generator);

  /// Writes all parts to the file at `path`, which is replaced atomically. The
  /// format is `.pt`, Python's zip format, which `torch.load` reads as a dict,
  /// or `.safetensors` (see `write_checkpoint_file`).
  ///
  /// Collective: rank 0 writes, within the group's timeout; every rank returns
  /// when the file is on the disk, or throws `c10::Error` with the reason.
  /// Throws `c10::ValueError` for any other extension. Warns if ranks pass
  /// different paths, and uses rank 0's path.
  void save(const std::string& path, const ProcessGroup& group = {}) const;

  /// Loads all parts from a file written by `save` or Python's `torch.save`;
  /// returns false if the path does not exist.
  ///
  /// Collective: by default, rank 0 reads the file and sends the other ranks a
  /// copy. Every rank throws the same `c10::Error` if ranks pass different
  /// paths (unless every rank reads the file), or if the file is corrupt or
  /// does not fit a rank's parts. If a rank throws, nothing changes on any
  /// rank, except as in `load_state_dict`. During the call, each rank's CPU
  /// memory holds the whole file; a device holds only the state.
  bool load(
      const std::string& path,
      const ProcessGroup& group = {},
      const LoadOptions& options = {});

  /// A dict of the parts' states by name, in the order of `add`. Collective:
  /// throws `c10::Error` on every rank if a part's `state_dict` throws on one,
  /// and `c10::ValueError` if parts, samplers or epochs differ between ranks.
  c10::IValue state_dict(const ProcessGroup& group = {}) const;

  /// Loads a state that `state_dict` returned in this or a different run.
  /// Throws `c10::Error` if a part is missing or does not fit. If the function
  /// throws, nothing changes, except Reducers and custom parts without
  /// `plan_state_dict`. Extra keys are ignored. Not collective.
  void load_state_dict(
      const c10::IValue& state,
      const ProcessGroup& group = {});

 private:
  friend class CheckpointManager;
  friend class ElasticRun;
  TrainingState& add_part(detail::TrainingPart part);

  /// Loads an existing file. On rank 0, `read` may contain the file's contents.
  void load_file(
      const std::string& path,
      const ProcessGroup& group,
      const LoadOptions& options,
      std::optional<c10::IValue> read = std::nullopt);

  std::vector<detail::TrainingPart> parts_;
};

} // namespace ddp

#include <ddp/checkpoint/internal/training_state-inl.h>
