#pragma once

#include <checkpoint/formats/common/byte_source.h>
#include <checkpoint/formats/zip/zip_reader.h>

#include <vector>

namespace ddp::detail {

/// Sets the records' digests where the file has some, and verifies all bytes
/// that are not their contents. `records` are in the order of their bytes.
void take_digests(
    const ByteSource& source,
    const std::vector<ZipRecord*>& records);

} // namespace ddp::detail
