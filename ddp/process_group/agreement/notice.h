#pragma once

#include <ddp/process_group.h>

#include <string>
#include <vector>

namespace ddp::detail {

/// What a rank tells all others before they exchange data, so that what one of
/// them finds wrong becomes the same error on all.
struct Notice {
  /// What the program called and with what the ranks must agree on: "gather to
  /// rank 0".
  std::string call;
  /// What the program has to change on this rank; empty if nothing.
  std::string mistake;
  /// What else has gone wrong on this rank; empty if nothing.
  std::string failure;
  /// What the others need to know.
  std::string content;
};

/// Returns the contents of all ranks, by rank. Throws the same words on all:
/// `c10::ValueError` where the calls differ or ranks made a mistake, otherwise
/// `c10::Error` where ranks failed. Collective.
std::vector<std::string> exchange_notices(
    const Notice& notice,
    const ProcessGroup& group);

/// What ranks have to say, with their numbers: "ranks 0 and 2: this; rank 1:
/// that". Those with an empty text are left out.
std::string name_by_ranks(const std::vector<std::string>& texts);

} // namespace ddp::detail
