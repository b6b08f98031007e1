#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace ddp::detail {

struct PickledValue {
  /// Of protocol 2, as torch.save writes it.
  std::string pickle;
  /// What the pickle calls storage "0", "1" and so on: the elements of each in
  /// order. They share the value's memory; `plain_tensor` is for them.
  std::vector<at::Tensor> storages;
};

/// The pickle of a value that `check_writable` allows. Throws `c10::ValueError`
/// for text of more than 4 GiB.
PickledValue write_pickle(const c10::IValue& value);

} // namespace ddp::detail
