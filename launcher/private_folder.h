#pragma once

#include <string>

namespace ddp {

/// TMPDIR where that is an absolute path, else /tmp.
std::string temporary_folder();

/// Makes a folder of this job's own, which no one else may enter (0700), in the
/// temporary folder. Empty if that cannot be: ranks then have nowhere to leave
/// their errors, which is not a reason not to run.
std::string make_private_folder();

/// <folder>/attempt_N; empty if there is no folder.
std::string attempt_folder(const std::string& folder, int attempt);

/// Removes it and all in it; nothing for an empty name.
void remove_private_folder(const std::string& folder);

/// Makes <parent>/<run id>_<random>, 0700, and `parent` where it is not there.
/// Throws LaunchError naming it and `source`, which is where it was said.
std::string make_log_folder(
    const std::string& source,
    const std::string& parent,
    const std::string& run_id);

} // namespace ddp
