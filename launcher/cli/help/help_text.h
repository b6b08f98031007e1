#pragma once

#include <cstddef>
#include <string>

namespace ddp {

/// What --help prints, at most `columns` wide where words allow it. help2man
/// and the shells' completion read it, too.
std::string help_text(size_t columns);

} // namespace ddp
