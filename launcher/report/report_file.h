#pragma once

#include <string>

namespace ddp {

/// Checks that a report can be written to `path` and removes an older one.
/// Throws LaunchError (exit code 2).
void prepare_report(const std::string& path);

/// Writes it: a regular file is replaced as a whole, or is the old one; a
/// device, a pipe or what a link leads to is written to in its place. Returns 0
/// or the errno that stopped it.
int write_report_file(const std::string& path, const std::string& text);

} // namespace ddp
