#pragma once

#include <string>

namespace ddp {

/// The manual page of ddprun, in roff.
std::string man_page();

} // namespace ddp
