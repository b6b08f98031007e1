#pragma once

#include <ios>
#include <random>
#include <sstream>
#include <string>

namespace ddp::detail {

/// A name that hardly any other process draws.
inline std::string random_name() {
  std::random_device device;
  std::ostringstream text;
  text << std::hex << device() << device();
  return text.str();
}

} // namespace ddp::detail
