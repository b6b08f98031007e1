#pragma once

#include <string>

namespace ddp {

/// The call in which a rank is by what its heartbeat says: what the program
/// called, without what that calls in turn. Empty between calls.
std::string call_of(const std::string& activity);

/// Such a call without its arguments: "save" for "save("a.pt")", "all_reduce"
/// for "all_reduce of 10 Float".
std::string name_of_call(const std::string& call);

/// What a heartbeat is about between calls: "barrier" of "after barrier".
/// Empty within a call, and after a step of a Reducer.
std::string call_before(const std::string& activity);

} // namespace ddp
