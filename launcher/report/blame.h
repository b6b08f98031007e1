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
  /// The rank's index; none where the ranks were in different calls, and no
  /// call has the most ranks.
  std::optional<size_t> index;
  /// What that rank did, and what the others did meanwhile, in one line.
  std::string text;
};

/// Names ranks that had ended with code 0 by the first failure, which they must
/// not do while others wait for them. None where no rank did, or where a
/// failure is not the consequence of another.
std::optional<Blame> blame_departed(const std::vector<RankEnd>& ends);

/// Names the ranks that were not in the call in which most were. Needs the ends
/// of all ranks of the job. None where all were in one call as far as is known,
/// or where a failure is not the consequence of another.
std::optional<Blame> blame_caller(const std::vector<RankEnd>& ends);

} // namespace ddp
