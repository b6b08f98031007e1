#pragma once

#include <ctime>
#include <string>
#include <vector>

#include <launcher/output/output_options.h>

namespace ddp {

/// What stands before each line of a rank. Of a template's `${...}` those that
/// OutputOptions names are replaced and others left as they are; `${time}` is
/// the local HH:MM:SS.
class LinePrefix {
 public:
  LinePrefix(
      const OutputOptions& options,
      const JobNames& names,
      const RankStream& rank);

  /// The prefix at this time; valid until the next call.
  const std::string& text(std::time_t now);

 private:
  std::vector<std::string> parts_; // the time stands between them
  std::time_t made_at_ = -1;
  std::string text_;
};

} // namespace ddp
