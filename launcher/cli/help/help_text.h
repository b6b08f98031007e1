#pragma once

#include <string>

namespace ddp {

/// What --help prints. help2man and the shells' completion read it, too.
std::string help_text();

} // namespace ddp
