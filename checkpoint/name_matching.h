#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ddp::detail {

/// A mapping between the tensors of a module and those of a file.
struct NameMatch {
  /// Name in the module, name in the file.
  std::vector<std::pair<std::string, std::string>> pairs;
  /// Names of the module that are not in the file.
  std::vector<std::string> missing;
  /// Names of the file that are not in the module.
  std::vector<std::string> unexpected;
};

/// Matches names up to each `module.` that Python's DistributedDataParallel
/// puts in front of a wrapped network's. Where several names of one list are
/// equal without it (a module may have a child `module`), those of both lists
/// are matched in alphabetical order if they are equally many, else none. Each
/// list must be free of duplicates; the result is in the order of names, not of
/// the lists.
NameMatch match_names(
    const std::vector<std::string>& module_names,
    const std::vector<std::string>& file_names);

} // namespace ddp::detail
