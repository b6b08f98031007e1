#include <checkpoint/formats/zip/crc32.h>

#include <caffe2/serialize/crc_alt.h> // LibTorch's own, which it does not export

namespace ddp::detail {

uint32_t crc32(uint32_t crc, const void* data, size_t bytes) {
  return crc32_fast(data, bytes, crc);
}

} // namespace ddp::detail
