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
  /// In the order of the JSON text.
  std::vector<TensorEntry> entries;
  SafetensorsMetadata metadata;
  /// Where the data begins in the file.
  uint64_t data_offset = 0;
  /// The checksums in a header that `format_header` wrote (of `kChecksumSize`
  /// digits each, in one): that of the header's text, with zeros in the
  /// checksum's own place, and then that of each of `entries`. They are not
  /// among `metadata`.
  std::string checksums;
};

/// Where such a header has its checksums.
constexpr size_t kChecksumOffset = 31;

/// The dtype's name in the format. Throws `c10::TypeError` that names `tensor`
/// if the format or this library does not support the dtype.
std::string safetensors_dtype(c10::ScalarType dtype, const std::string& tensor);

/// The text of the header, padded to a multiple of 8 bytes, with zeros for the
/// checksums.
std::string format_header(const SafetensorsHeader& header);

/// The checksum of such a text, whatever is in the checksum's own place.
std::string header_checksum(std::string text);

/// Reads a header whose file has `data_bytes` bytes after it, and checks that
/// its entries are well-formed and tile those bytes without gap or overlap, and
/// the header's own checksum. Throws `c10::Error`.
SafetensorsHeader parse_header(const std::string& text, uint64_t data_bytes);

} // namespace ddp::detail
