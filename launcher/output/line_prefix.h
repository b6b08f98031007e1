#pragma once

#include <ctime>
#include <string>

#include <common/scheduler/rank_environment.h>
#include <launcher/output/output_options.h>

namespace ddp {

/// What stands before each line of a rank. Of a template's `${...}` those that
/// OutputOptions names are replaced and others left as they are; `${time}` is
/// the local HH:MM:SS.
class LinePrefix {
 public:
  LinePrefix(
      const OutputOptions& options,
      const JobEnvironment& job,
      const RankStream& rank);

  /// The prefix at this time.
  std::string text(std::time_t now) const;

 private:
  std::string text_;
  bool has_time_ = false;
};

} // namespace ddp
