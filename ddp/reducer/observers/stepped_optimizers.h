#pragma once

namespace torch::optim {
class Optimizer;
}

namespace ddp::detail {

/// Remembers that a Reducer steps this optimizer in backward, or does not any
/// more.
void set_stepped_in_backward(
    const torch::optim::Optimizer& optimizer,
    bool stepped);

/// Throws `c10::Error` where one does: `operation` would come too late.
void check_not_stepped_in_backward(
    const torch::optim::Optimizer& optimizer,
    const char* operation);

} // namespace ddp::detail
