#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace ddp::debug {

/// What a rank called.
struct Call {
  /// As c10d's functions are called: "all_reduce".
  const char* operation = "";
  /// What else the ranks must agree on: "SUM", "root 2".
  std::string arguments;
  /// Dtypes and shapes: "float32 [4, 3]", "3 x int64 [1]".
  std::string tensors;
  /// Whether tensors must be alike on all ranks.
  bool alike = true;
  int64_t bytes = 0;

  /// "all_reduce(SUM) of float32 [4, 3]".
  std::string text() const;
  /// What must be equal on all ranks.
  std::string signature() const;
};

/// A call whose tensors are the same on all ranks.
Call call_of(
    const char* operation,
    at::TensorList tensors,
    std::string arguments = "");

/// One whose ranks may pass tensors of different shapes and numbers, such as a
/// gather; the dtype is among its arguments.
Call uneven_call_of(
    const char* operation,
    at::TensorList tensors,
    const std::string& arguments = "");

} // namespace ddp::debug
