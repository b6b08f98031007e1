#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <common/processes/failure.h>

namespace ddp {

/// Which rank made the others fail where each failed rank says that another one
/// is the reason.
struct Blame {
  /// The rank's index; none if the ranks were in different calls, and no call
  /// has the most ranks.
  std::optional<size_t> index;
  /// What that rank did, and what the others did meanwhile, in one line.
  std::string text;
};

/// Names ranks that had ended with code 0 by the first failure, which they must
/// not do while others wait for them. None if no rank did, or where a failure
/// is not the consequence of another.
std::optional<Blame> blame_departed(const std::vector<RankEnd>& ends);

/// Names the ranks that were not in the call in which most were. Needs the ends
/// of all ranks of the job. None if all were in one call as far as is known, or
/// where a failure is not the consequence of another.
std::optional<Blame> blame_caller(const std::vector<RankEnd>& ends);

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
