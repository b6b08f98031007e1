#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/internal/check.h>
#include <ddp/internal/export.h>
#include <ddp/internal/text_tensor.h>
#include <ddp/process_group.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <sstream>
#include <string>

namespace ddp {

/// Seeds LibTorch's generators, CPU and CUDA, equally on all ranks with rank
/// 0's `seed` and returns it; then equal code builds equal weights everywhere.
/// Collective.
DDP_API uint64_t manual_seed(uint64_t seed, const ProcessGroup& group);

/// The same with a seed that rank 0 draws from the operating system; a warning
/// on rank 0 says which, so that the run can be repeated. Collective.
DDP_API uint64_t manual_seed(const ProcessGroup& group);

/// A seed for what is to differ over ranks, and to be the same in each run:
/// for a `std::mt19937` of the program's, say. With `m` a step of SplitMix64
/// (Steele, Lea and Flood: Fast splittable pseudorandom number generators,
/// 2014), `x = m(m(seed) ^ epoch)`, and numbers modulo 2^64, it has the upper
/// 32 bits of `m(x ^ rank)` and the lower ones of `x + 0x9e3779b1 * rank`:
/// those are all that some generators take (LibTorch's on the CPU), and differ
/// for all ranks of an epoch. Not collective.
DDP_API uint64_t rank_seed(uint64_t seed, int64_t epoch, int64_t rank);

/// Seeds LibTorch's generators with `rank_seed(seed, epoch, group.rank())`,
/// which it returns: from here on the ranks draw different numbers, for dropout
/// and augmentation. `manual_seed` leaves the ranks' generators equal, and
/// nothing else in this library makes them differ. Call it when the weights are
/// there, and again in each epoch, so that an epoch can be repeated by itself.
/// Not collective.
DDP_API uint64_t
seed_rank_streams(uint64_t seed, int64_t epoch, const ProcessGroup& group);

/// A seed for one sample of a dataset: `m(x ^ ~index)`, as in `rank_seed`. A
/// data loader's workers share LibTorch's generators in an order that differs
/// from run to run; a dataset that draws from a generator of its own, seeded by
/// this in `get(index)`, gives the same samples whatever the number of workers
/// and ranks. Not collective.
DDP_API uint64_t sample_seed(uint64_t seed, int64_t epoch, size_t index);

/// The states of LibTorch's generators: "cpu" and, if CUDA has been used,
/// "cuda:0", "cuda:1", ...; each a tensor of uint8 of shape [bytes] on the CPU,
/// of this LibTorch's own format. Not collective; ranks may differ.
DDP_API torch::OrderedDict<std::string, at::Tensor> random_state();

/// Puts generators into the states that `random_state` returned. Those of GPUs
/// that this process does not have are left out. Throws `c10::Error` for what
/// is no such state. Not collective.
DDP_API void set_random_state(
    const torch::OrderedDict<std::string, at::Tensor>& state);

/// The state of a generator of the standard library, `std::mt19937` for one, as
/// a tensor of uint8 of shape [bytes], to be kept with the others.
template <typename Generator>
at::Tensor generator_state(const Generator& generator) {
  std::ostringstream text;
  text << generator; // as the standard says, whatever the locale
  return detail::to_bytes(text.str());
}

/// Puts it into that state. Throws `c10::ValueError` if the tensor is none.
template <typename Generator>
void set_generator_state(Generator& generator, const at::Tensor& state) {
  DDP_CHECK_VALUE(
      state.defined() && state.scalar_type() == at::kByte && state.is_cpu() &&
          state.is_contiguous(),
      "set_generator_state: a state is a tensor of uint8 on the CPU");
  std::istringstream text(detail::to_string(state));
  Generator read;
  DDP_CHECK_VALUE(
      text >> read,
      "set_generator_state: this is no state of such a generator");
  generator = read;
}

/// Makes LibTorch compute the same bits in each run, or throw if it has no such
/// algorithm: `torch.use_deterministic_algorithms(True)`, cuDNN's deterministic
/// algorithms without trying which is fastest, and the workspace setting that
/// cuBLAS needs (CUBLAS_WORKSPACE_CONFIG=:4096:8, unless it is set). To be
/// called before CUDA is used; not collective, but to be called on all ranks.
/// `deterministic` false turns the first two off again.
DDP_API void use_deterministic_algorithms(bool deterministic = true);

} // namespace ddp
