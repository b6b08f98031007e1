#include <checkpoint/formats/common/byte_source.h>
#include <checkpoint/formats/torch_archive.h>
#include <checkpoint/formats/zip/crc32.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace {

using namespace ddp::detail;

constexpr uint64_t kLocalHeaderSize = 30;

template <typename T>
T load(const uint8_t* data) {
  T value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

// The start of the content of the record whose local header is at `header`.
uint64_t content_at(const uint8_t* data, size_t size, uint64_t header) {
  if (header + kLocalHeaderSize > size) {
    return size;
  }
  return header + kLocalHeaderSize + load<uint16_t>(data + header + 26) +
      load<uint16_t>(data + header + 28);
}

// Corrects the directory's CRC-32s, so that the damage is not rejected by them.
void repair_checksums(uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (size_t at = 0;; ++at) {
    at = bytes.find("PK\x01\x02", at);
    if (at == bytes.npos || at + 46 > size) {
      return;
    }
    const auto begin = content_at(data, size, load<uint32_t>(data + at + 42));
    const uint64_t length = load<uint32_t>(data + at + 24);
    if (begin + length <= size) {
      const auto crc = crc32(0, data + begin, length);
      std::memcpy(data + at + 16, &crc, sizeof(crc));
    }
  }
}

} // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max);

extern "C" size_t LLVMFuzzerCustomMutator(
    uint8_t* data,
    size_t size,
    size_t max,
    unsigned seed) {
  const auto changed = LLVMFuzzerMutate(data, size, max);
  if (seed % 8 != 0) {
    repair_checksums(data, changed);
  }
  return changed;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const MemorySource source(data, size);
    TorchArchive(source).value();
  } catch (const c10::Error&) {
  }
  return 0;
}
