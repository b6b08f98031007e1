#pragma once

#include <tests/support/backend_values.h>

// For tests of waits for operations, and of their failures.

namespace ddp::test {

/// Sends a message from one rank to another, which waits for the message.
inline void signal(
    const c10::intrusive_ptr<c10d::Backend>& backend,
    int from,
    int to) {
  Tensors message{torch::zeros({1})};
  if (backend->getRank() == from) {
    backend->send(message, to, 0)->wait();
  } else if (backend->getRank() == to) {
    backend->recv(message, from, 0)->wait();
  }
}

/// The error that `function` throws; requires that it takes about `expected`.
template <typename Function>
std::string error_after(
    std::chrono::milliseconds expected,
    Function&& function,
    std::chrono::milliseconds slack = std::chrono::seconds(10)) {
  const auto start = std::chrono::steady_clock::now();
  const auto text = words_of<c10::DistBackendError>(function);
  const auto taken = std::chrono::steady_clock::now() - start;
  REQUIRE(taken >= expected);
  REQUIRE(taken < expected + slack);
  return text;
}

/// The error that `function` throws at any time up to `slack`.
template <typename Function>
std::string error_after(
    Function&& function,
    std::chrono::milliseconds slack = std::chrono::seconds(10)) {
  return error_after(std::chrono::milliseconds(0), function, slack);
}

} // namespace ddp::test
