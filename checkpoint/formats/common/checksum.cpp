#include <checkpoint/formats/common/checksum.h>

#include <cinttypes>
#include <cstdio>

namespace ddp::detail {

Checksum::Checksum() : state_(XXH3_createState(), &XXH3_freeState) {
  XXH3_64bits_reset(state_.get());
}

void Checksum::add(const void* data, size_t bytes) {
  XXH3_64bits_update(state_.get(), data, bytes);
}

uint64_t Checksum::value() const {
  return XXH3_64bits_digest(state_.get());
}

std::string Checksum::hex() const {
  char text[kChecksumSize + 1];
  std::snprintf(text, sizeof(text), "%016" PRIx64, value());
  return text;
}

} // namespace ddp::detail
