#pragma once

#include <tests/support/catch.h>

#include <ddp/environment/environment.h>
#include <tests/support/launch_variables.h>

namespace ddp::test {

/// The environment that these variables make, without a PMIx server unless one
/// is given.
inline LaunchEnvironment read(
    const Variables& variables,
    const ProcessGroupOptions& options = {},
    const PmixQuery& pmix = [] { return std::optional<PmixJob>(); }) {
  return read_launch_environment(options, environment_of(variables), pmix);
}

/// Which rank this is, who says so, and where it was told to meet the others.
inline std::string text_of(const LaunchEnvironment& env) {
  std::ostringstream text;
  text << env.source << ": rank " << env.rank << " of " << env.world_size;
  if (env.local_rank) {
    text << ", local " << *env.local_rank;
  }
  if (!env.master_addr.empty()) {
    text << ", at " << env.master_addr << ":" << env.master_port;
  }
  return text.str();
}

/// The words of the error that they are.
inline std::string error(
    const Variables& variables,
    const ProcessGroupOptions& options = {}) {
  return words_of<c10::ValueError>([&] { read(variables, options); });
}

} // namespace ddp::test
