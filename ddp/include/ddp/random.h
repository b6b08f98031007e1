#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/internal/check.h>
#include <ddp/internal/export.h>
#include <ddp/internal/text_tensor.h>
#include <ddp/process_group.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <locale>
#include <sstream>
#include <string>

namespace ddp {

/// Seeds LibTorch's CPU and CUDA generators on all ranks with rank 0's `seed`,
/// and returns this seed. The same code then initializes equal weights on all
/// ranks. Collective.
DDP_API uint64_t manual_seed(uint64_t seed, const ProcessGroup& group);

/// As above, with a seed that rank 0 draws from the operating system and
/// reports in a warning, so that the run can be repeated. Collective.
DDP_API uint64_t manual_seed(const ProcessGroup& group);

/// Returns a seed for values that must differ between ranks but repeat in each
/// run, for instance for a program's `std::mt19937`. Let `m` be a step of
/// SplitMix64 (Steele, Lea and Flood: Fast splittable pseudorandom number
/// generators, 2014), and `x = m(m(seed) ^ epoch)`, modulo 2^64. The seed has
/// the upper 32 bits of `m(x ^ rank)` and the lower 32 bits of
/// `x + 0x9e3779b1 * rank`. Some generators, such as LibTorch's on the CPU, use
/// only the lower bits, which differ between all ranks of an epoch. Not
/// collective.
DDP_API uint64_t rank_seed(uint64_t seed, int64_t epoch, int64_t rank);

/// Seeds LibTorch's generators with `rank_seed(seed, epoch, group.rank())`, and
/// returns this seed. Ranks then draw different numbers, for instance for
/// dropout and augmentation. After `manual_seed`, all ranks draw equal numbers;
/// no other function of this library makes the numbers differ. Call this
/// function after the weights are initialized, and again in each epoch, so that
/// each epoch can be repeated alone. Not collective.
DDP_API uint64_t
seed_rank_streams(uint64_t seed, int64_t epoch, const ProcessGroup& group);

/// Returns a seed for one sample of a dataset: `m(x ^ ~index)`, as in
/// `rank_seed`. A data loader's workers use LibTorch's generators in an order
/// that varies between runs. A dataset whose `get(index)` seeds a separate
/// generator with this seed gives the same samples for any number of workers
/// and ranks. A sample that is drawn twice in an epoch, as by
/// `DistributedWeightedSampler`, gets the same seed. Not collective.
DDP_API uint64_t sample_seed(uint64_t seed, int64_t epoch, size_t index);

/// The states of LibTorch's generators: "cpu" and, if CUDA has been used,
/// "cuda:0", "cuda:1", ...; each is a uint8 tensor of shape [bytes] on the CPU,
/// in this LibTorch's format. Not collective; states may differ between ranks.
DDP_API torch::OrderedDict<std::string, at::Tensor> random_state();

/// Restores the states that `random_state` returned. If the states contain one
/// GPU and this process uses one, restores the GPU's state there, whatever its
/// index; otherwise, if the states contain GPUs, warns of a used GPU without a
/// state. States of GPUs that
/// this process does not have are ignored. Throws `c10::Error` for an invalid
/// state. Not collective.
DDP_API void set_random_state(
    const torch::OrderedDict<std::string, at::Tensor>& state);

/// The state of a standard-library generator, such as `std::mt19937`, as a
/// uint8 tensor of shape [bytes] on the CPU, for checkpoints. Not collective.
template <typename Generator>
at::Tensor generator_state(const Generator& generator) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << generator; // the standard defines this format
  return detail::to_bytes(text.str());
}

/// Restores a state from `generator_state`. Throws `c10::ValueError` for an
/// invalid tensor. Not collective.
template <typename Generator>
void set_generator_state(Generator& generator, const at::Tensor& state) {
  DDP_CHECK_VALUE(
      state.defined() && state.scalar_type() == at::kByte && state.is_cpu() &&
          state.is_contiguous(),
      "set_generator_state: expected a uint8 tensor on the CPU");
  std::istringstream text(detail::to_string(state));
  text.imbue(std::locale::classic());
  Generator read;
  DDP_CHECK_VALUE(
      text >> read,
      "set_generator_state: the state belongs to another kind of generator");
  generator = read;
}

/// Makes LibTorch compute bit-identical results in each run, or throw if it has
/// no deterministic algorithm. Sets `torch.use_deterministic_algorithms(True)`,
/// selects cuDNN's deterministic algorithms without benchmarking, and sets the
/// workspace that cuBLAS needs (CUBLAS_WORKSPACE_CONFIG=:4096:8, unless the
/// variable is set). Call this function on all ranks before CUDA is used; not
/// collective. If `deterministic` is false, turns off the deterministic
/// algorithms of LibTorch and cuDNN.
DDP_API void use_deterministic_algorithms(bool deterministic = true);

} // namespace ddp
