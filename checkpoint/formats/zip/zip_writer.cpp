#include <checkpoint/formats/common/byte_source.h>
#include <checkpoint/formats/zip/crc32.h>
#include <checkpoint/formats/zip/zip_format.h>
#include <checkpoint/formats/zip/zip_writer.h>

#include <algorithm>

namespace ddp::detail {
namespace {

constexpr uint64_t kRecordAlignment = 64;
// The first day that the format knows: equal values make equal files.
constexpr uint16_t kDate = 1 << 5 | 1;

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

uint32_t narrow(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, zip::kIn64Bits32));
}

bool wide(uint64_t value) {
  return value >= zip::kIn64Bits32;
}

// The 64-bit part of a header: the values that are too large, in their order.
template <typename... Values>
std::string extra64(Values... values) {
  std::string content;
  ((wide(values) ? append(content, uint64_t{values}) : void()), ...);
  std::string extra;
  if (!content.empty()) {
    append(extra, zip::kExtra64);
    append(extra, static_cast<uint16_t>(content.size()));
  }
  return extra + content;
}

void append_padding(std::string& extra, uint64_t content_at) {
  auto padding =
      (kRecordAlignment - content_at % kRecordAlignment) % kRecordAlignment;
  if (padding == 0) {
    return;
  }
  padding += padding < zip::kExtraHeaderSize ? kRecordAlignment : 0;
  append(extra, zip::kExtraPadding);
  append(extra, static_cast<uint16_t>(padding - zip::kExtraHeaderSize));
  extra.append(padding - zip::kExtraHeaderSize, '\0');
}

// What local header and directory have in common, up to the name's length.
void append_description(std::string& header, uint32_t crc, uint64_t bytes) {
  append(header, zip::kVersion);
  append(header, zip::kUtf8Name);
  append(header, zip::kStored);
  append(header, uint16_t{0}); // midnight
  append(header, kDate);
  append(header, crc);
  append(header, narrow(bytes));
  append(header, narrow(bytes));
}

void append_end64(
    std::string& end,
    uint64_t count,
    uint64_t directory,
    uint64_t bytes) {
  const auto position = directory + bytes;
  append(end, zip::kEnd64);
  append(end, zip::kEnd64Size - zip::kEnd64Uncounted);
  append(end, zip::kVersion);
  append(end, zip::kVersion);
  append(end, uint64_t{0}); // parts
  append(end, count);
  append(end, count);
  append(end, bytes);
  append(end, directory);

  append(end, zip::kEnd64Locator);
  append(end, uint32_t{0});
  append(end, position);
  append(end, uint32_t{1});
}

} // namespace

void ZipWriter::add(const std::string& name, const void* data, uint64_t bytes) {
  uint32_t crc = 0;
  Digest digest;
  MemorySource(data, bytes)
      .scan(0, bytes, [&](const void* piece, size_t piece_bytes) {
        crc = crc32(crc, piece, piece_bytes);
        digest.add(piece, piece_bytes);
      });
  digests_ += digest.hex() + "  " + name + "\n";
  add_headers(name, crc, bytes);
  file_.write(data, bytes);
  position_ += bytes;
}

void ZipWriter::add_headers(
    const std::string& name,
    uint32_t crc,
    uint64_t bytes) {
  auto extra = extra64(bytes, bytes);
  const auto unpadded =
      position_ + zip::kLocalHeaderSize + name.size() + extra.size();
  append_padding(extra, unpadded);
  std::string header;
  append(header, zip::kLocalHeader);
  append_description(header, crc, bytes);
  append(header, static_cast<uint16_t>(name.size()));
  append(header, static_cast<uint16_t>(extra.size()));

  const auto central_extra = extra64(bytes, bytes, position_);
  append(directory_, zip::kCentralHeader);
  append(directory_, zip::kVersion);
  append_description(directory_, crc, bytes);
  append(directory_, static_cast<uint16_t>(name.size()));
  append(directory_, static_cast<uint16_t>(central_extra.size()));
  append(directory_, uint16_t{0}); // comment
  append(directory_, uint16_t{0}); // part
  append(directory_, uint16_t{0}); // attributes
  append(directory_, uint32_t{0});
  append(directory_, narrow(position_));
  directory_ += name + central_extra;

  write(header + name + extra);
  ++count_;
}

void ZipWriter::finish() {
  add_headers(
      zip::kDigestRecord,
      crc32(0, digests_.data(), digests_.size()),
      digests_.size());
  write(digests_);

  const std::string comment = zip::kDigestComment;
  std::string end;
  append_end64(end, count_, position_, directory_.size());
  const auto count =
      static_cast<uint16_t>(std::min<uint64_t>(count_, zip::kIn64Bits16));
  append(end, zip::kEnd);
  append(end, uint32_t{0}); // parts
  append(end, count);
  append(end, count);
  append(end, narrow(directory_.size()));
  append(end, narrow(position_));
  append(end, static_cast<uint16_t>(comment.size() + kDigestSize));
  write(directory_ + end + comment);
  write(structure_.hex());
}

void ZipWriter::write(const std::string& bytes) {
  file_.write(bytes.data(), bytes.size());
  structure_.add(bytes);
  position_ += bytes.size();
}

} // namespace ddp::detail
