#pragma once

#include <ios>
#include <locale>
#include <random>
#include <sstream>
#include <string>

namespace ddp::detail {

/// A random name that another process is very unlikely to draw.
inline std::string random_name() {
  std::random_device device;
  std::ostringstream text;
  text.imbue(std::locale::classic()); // others group digits
  text << std::hex << device() << device();
  return text.str();
}

} // namespace ddp::detail
