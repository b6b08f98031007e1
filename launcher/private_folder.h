#pragma once

#include <string>

namespace ddp {

/// TMPDIR if it is an absolute path, otherwise /tmp.
std::string temporary_folder();

/// Creates a private folder for this job (mode 0700) in the temporary folder.
/// Returns an empty name if that fails; the job then runs without error files.
std::string make_private_folder();

/// <folder>/attempt_N; empty if there is no folder.
std::string attempt_folder(const std::string& folder, int attempt);

/// Removes the folder with its contents; does nothing for an empty name.
void remove_private_folder(const std::string& folder);

/// Creates <parent>/<run id>_<random>, mode 0700, and `parent` if it does not
/// exist. Throws a LaunchError that names `parent` and `source`, the option or
/// variable that set it.
std::string make_log_folder(
    const std::string& source,
    const std::string& parent,
    const std::string& run_id);

} // namespace ddp
