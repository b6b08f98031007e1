#pragma once

// LibTorch and Catch2 both define CHECK and friends: LibTorch has to come
// first, and its macro has to go.
#include <torch/torch.h>
#undef CHECK
#include <tests/support/catch_plain.h>

namespace ddp::test {

/// The words of the error that `function` throws; none where it throws none.
template <typename Error = c10::Error, typename Function>
std::string words_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

} // namespace ddp::test
