#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace ddp::detail {

struct PickledValue {
  /// The pickle, in protocol 2, as torch.save writes it.
  std::string pickle;
  /// The elements of the storages with keys "0", "1" and so on in the pickle.
  /// The tensors share the value's memory; convert them with `plain_tensor`.
  std::vector<at::Tensor> storages;
};

/// The pickle of a value that `check_writable` allows. Throws `c10::ValueError`
/// for a string of more than 4 GiB.
PickledValue write_pickle(const c10::IValue& value);

} // namespace ddp::detail
