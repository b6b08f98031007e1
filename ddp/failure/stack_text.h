#pragma once

#include <string>

namespace ddp::debug {

/// The calling thread's stack, one line per frame, without the frames between
/// the caller of a collective and the code that records the call.
std::string stack_text();

} // namespace ddp::debug
