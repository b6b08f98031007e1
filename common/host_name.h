#pragma once

#include <unistd.h>

#include <array>
#include <climits>
#include <string>

namespace ddp::detail {

/// The name of this machine, for messages.
inline std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

} // namespace ddp::detail
