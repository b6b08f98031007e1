#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include <common/file_descriptor.h>

namespace ddp {

/// A program of ddprun's own: beside it, or in ../libexec/ddp where it is
/// installed. Throws LaunchError where it is in neither.
std::string find_helper(const std::string& name);

/// What helpers get of this process's environment: not the nodes' secret, as
/// they face the network.
std::vector<std::string> helper_environment();

/// Starts the store on a listening socket, which it takes over; ranks may
/// connect before it is ready. It dies with the calling process, or when it is
/// killed. What it has to say goes to standard error. Throws std::system_error.
pid_t start_store(const std::string& program, FileDescriptor listener);

} // namespace ddp
