#pragma once

#include <string>

#include <launcher/listener.h>
#include <launcher/options.h>
#include <launcher/worker_environment.h>

namespace ddp {

/// All that is decided before the first process is forked.
struct Job {
  LaunchOptions options;
  std::string program; // the file that options.command names
  Listener listener; // handed to rank 0
  JobEnvironment environment;
};

} // namespace ddp
