#pragma once

#include <string>

namespace ddp::debug {

/// The calling thread's stack, a line for each frame, without those that lie
/// between a collective's caller and the debug mode.
std::string stack_text();

} // namespace ddp::debug
