#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace ddp::debug {

/// A rank's call to a collective.
struct Call {
  /// The name of c10d's function: "all_reduce".
  const char* operation = "";
  /// Other arguments that must be the same on all ranks: "SUM", "root 2".
  std::string arguments;
  /// Dtypes and shapes: "float32 [4, 3]", "3 x int64 [1]", "cuda float32 [4]".
  std::string tensors;
  /// Whether dtypes and shapes must be the same on all ranks.
  bool alike = true;
  int64_t bytes = 0;

  /// Returns text such as "all_reduce(SUM) of float32 [4, 3]".
  std::string text() const;
  /// The part of the text that must be equal on all ranks.
  std::string signature() const;
};

/// A call whose tensors have the same dtypes and shapes on all ranks.
Call call_of(
    const char* operation,
    at::TensorList tensors,
    std::string arguments = "");

/// A call whose tensors may differ in shape and number between ranks, such as a
/// gather; the dtype is part of its arguments.
Call uneven_call_of(
    const char* operation,
    at::TensorList tensors,
    const std::string& arguments = "");

} // namespace ddp::debug
