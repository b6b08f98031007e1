#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <common/processes/failure.h>

namespace ddp {

/// The rank that made the others fail, if each failed rank names another rank
/// as the reason.
struct Blame {
  /// The rank's index; none if the ranks were in different calls, and no single
  /// call has the most ranks.
  std::optional<size_t> index;
  /// One line about the calls of that rank and of the others.
  std::string text;
};

/// Finds ranks that exited with code 0 before the first failure, while other
/// ranks waited for them. None if no such ranks exist, or if a failure is not
/// the consequence of another failure, or is in a group of some of the ranks.
std::optional<Blame> blame_departed(const std::vector<RankEnd>& ends);

/// Finds the ranks that were not in the call of the majority. Needs the ends of
/// all ranks of the job. None if all known calls are the same, or if a failure
/// is not the consequence of another failure, or is in a group of some of the
/// ranks.
std::optional<Blame> blame_caller(const std::vector<RankEnd>& ends);

/// The program's call in a heartbeat's activity, without nested calls. Empty
/// between calls.
std::string call_of(const std::string& activity);

} // namespace ddp
