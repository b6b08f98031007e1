#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <ddp/export.h>
#include <ddp/internal/text_tensor.h>
#include <torch/ordered_dict.h>

#include <sstream>
#include <string>

namespace ddp {

/// The states of LibTorch's generators: "cpu" and, where CUDA has been used,
/// "cuda:0", "cuda:1", ...; each a tensor of uint8 of shape [bytes] on the CPU,
/// of this LibTorch's own format. Not collective; ranks may differ.
DDP_API torch::OrderedDict<std::string, at::Tensor> random_state();

/// Puts generators into the states that `random_state` returned. Those of GPUs
/// that this process does not have are left out. Throws `c10::Error` for what
/// is no such state. Not collective.
DDP_API void set_random_state(
    const torch::OrderedDict<std::string, at::Tensor>& state);

namespace detail {

/// Throws `c10::Error` if `set_random_state` would; changes nothing.
DDP_API void check_random_state(
    const torch::OrderedDict<std::string, at::Tensor>& state);

} // namespace detail

/// The state of a generator of the standard library, `std::mt19937` for one, as
/// a tensor of uint8 of shape [bytes], to be kept with the others.
template <typename Generator>
at::Tensor generator_state(const Generator& generator);

/// Puts it into that state. Throws `c10::ValueError` where the tensor is none.
template <typename Generator>
void set_generator_state(Generator& generator, const at::Tensor& state);

template <typename Generator>
at::Tensor generator_state(const Generator& generator) {
  std::ostringstream text;
  text << generator; // as the standard says, whatever the locale
  return detail::to_bytes(text.str());
}

template <typename Generator>
void set_generator_state(Generator& generator, const at::Tensor& state) {
  TORCH_CHECK_VALUE(
      state.defined() && state.scalar_type() == at::kByte && state.is_cpu() &&
          state.is_contiguous(),
      "set_generator_state: a state is a tensor of uint8 on the CPU");
  std::istringstream text(detail::to_string(state));
  Generator read;
  TORCH_CHECK_VALUE(
      text >> read,
      "set_generator_state: this is no state of such a generator");
  generator = read;
}

} // namespace ddp
