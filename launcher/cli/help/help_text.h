#pragma once

#include <string>

namespace ddp {

/// What --help prints, at most `columns` wide where words allow it.
std::string help_text(size_t columns);

} // namespace ddp
