#pragma once

#include <c10/core/ScalarType.h>
#include <checkpoint/safetensors.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::detail {

/// What the JSON header of a safetensors file says about one tensor.
struct TensorEntry {
  std::string name;
  c10::ScalarType dtype;
  std::vector<int64_t> shape;
  /// Byte range in the data section.
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  /// In the order of the JSON text.
  std::vector<TensorEntry> entries;
  SafetensorsMetadata metadata;
  /// The header's own statement of the digest, empty where it has none. It is
  /// not among `metadata`.
  std::string digest;
};

/// Where a header that `format_header` wrote has its digest, and how long it
/// is: the hexadecimal digits of a 64-bit XXH3. While the digest is computed
/// they are zeros.
constexpr size_t kDigestOffset = 31;
constexpr size_t kDigestSize = 16;

/// The dtype's name in the format. Throws `c10::TypeError` naming `tensor`
/// where the format, or this library, has none.
std::string safetensors_dtype(c10::ScalarType dtype, const std::string& tensor);

/// The text of the header, padded to a multiple of 8 bytes, with zeros for a
/// digest.
std::string format_header(const SafetensorsHeader& header);

/// Reads a header whose file has `data_bytes` bytes after it, and checks that
/// its entries are well-formed and tile those bytes without gap or overlap.
/// Throws `c10::Error` that begins with `where`.
SafetensorsHeader parse_header(
    const std::string& text,
    uint64_t data_bytes,
    const std::string& where);

} // namespace ddp::detail
