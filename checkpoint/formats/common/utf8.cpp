#include <checkpoint/formats/common/utf8.h>

#include <cstddef>
#include <cstdint>

namespace ddp::detail {

bool is_utf8(std::string_view text) {
  constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    const size_t more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if ((lead >= 0x80 && lead < 0xC0) || lead >= 0xF8 ||
        text.size() - i < more) {
      return false;
    }
    uint32_t code = more == 0 ? lead : lead & (0x3F >> more);
    for (size_t k = 0; k < more; ++k) {
      const auto next = static_cast<unsigned char>(text[i++]);
      if ((next & 0xC0) != 0x80) {
        return false;
      }
      code = code << 6 | (next & 0x3F);
    }
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    if (code < kLeast[more] || surrogate || code > 0x10FFFF) {
      return false;
    }
  }
  return true;
}

} // namespace ddp::detail
