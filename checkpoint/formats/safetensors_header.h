#pragma once

#include <c10/core/ScalarType.h>
#include <checkpoint/formats/common/checksum.h>
#include <ddp/checkpoint/checkpoint_file.h>

#include <vector>

namespace ddp::detail {

/// The entry of one tensor in the JSON header of a safetensors file.
struct TensorEntry {
  std::string name;
  c10::ScalarType dtype;
  std::vector<int64_t> shape;
  /// Byte range in the data section.
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  /// The entries in the order of the JSON text.
  std::vector<TensorEntry> entries;
  SafetensorsMetadata metadata;
  /// The offset of the data in the file.
  uint64_t data_offset = 0;
  /// The checksums in a header that `format_header` wrote, joined, with
  /// `kChecksumSize` digits each. The first checksum covers the header's text,
  /// with zeros for this checksum; a checksum for each of `entries` follows.
  /// `metadata` does not contain the checksums.
  std::string checksums;
};

/// The offset of the checksums in a header that `format_header` wrote.
constexpr size_t kChecksumOffset = 31;

/// The dtype's name in the format. Throws a `c10::TypeError` that names
/// `tensor` if the format or this library does not support the dtype.
std::string safetensors_dtype(c10::ScalarType dtype, const std::string& tensor);

/// The text of the header, padded to a multiple of 8 bytes, with zeros for the
/// checksums.
std::string format_header(const SafetensorsHeader& header);

/// The checksum of a header's text; ignores the checksum that the text
/// contains.
std::string header_checksum(std::string text);

/// Reads a header that `data_bytes` bytes follow in the file. Checks that the
/// entries are well-formed and cover these bytes without gaps or overlaps, and
/// checks the header's checksum. Throws `c10::Error`.
SafetensorsHeader parse_header(const std::string& text, uint64_t data_bytes);

} // namespace ddp::detail
