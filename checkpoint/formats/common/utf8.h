#pragma once

#include <string_view>

namespace ddp::detail {

/// Whether the bytes are UTF-8 as Unicode defines it: shortest forms, no
/// surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

} // namespace ddp::detail
