#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ddp::detail {

/// Which tensor of a file belongs to which of a module.
struct NameMatch {
  /// Name in the module, name in the file.
  std::vector<std::pair<std::string, std::string>> pairs;
  /// Names of the module that the file has not.
  std::vector<std::string> missing;
  /// Names of the file that the module has not.
  std::vector<std::string> unexpected;
};

/// Matches names up to the `module.` that Python's DistributedDataParallel puts
/// in front of them.
///
/// A prefix is dropped only if all names of a part of the file have it and not
/// all of the module's part do, or the other way round: a module with a child
/// that is called `module` keeps its names. The rule is applied to the whole
/// and then to each child for itself, so that it serves where several networks,
/// some of them wrapped, are in one file; and repeatedly, for wrapped wrappers.
/// Each list must be free of duplicates; the result is in the order of names,
/// not of the lists.
NameMatch match_names(
    const std::vector<std::string>& module_names,
    const std::vector<std::string>& file_names);

} // namespace ddp::detail
