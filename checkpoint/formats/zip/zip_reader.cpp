#include <checkpoint/formats/zip/crc32.h>
#include <checkpoint/formats/zip/zip_reader.h>
#include <ddp/internal/check.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace ddp::detail {

// The numbers of the zip format (PKWARE's APPNOTE.TXT, 4.3 and 4.5).
namespace zip {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kCentralHeader = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kEnd64Locator = 0x07064b50;

constexpr uint64_t kLocalHeaderSize = 30;
constexpr uint64_t kCentralHeaderSize = 46;
constexpr uint64_t kEndSize = 22;
constexpr uint64_t kEnd64Size = 56;
constexpr uint64_t kEnd64LocatorSize = 20;
/// The bytes of kEnd64's fixed part that its size field does not count.
constexpr uint64_t kEnd64Uncounted = 12;

constexpr uint16_t kEncrypted = 1;
constexpr uint16_t kSizesFollow = 1 << 3;
constexpr uint16_t kStored = 0;
constexpr uint16_t kExtra64 = 1;
constexpr uint64_t kExtraHeaderSize = 4;
constexpr uint64_t kMaxComment = 0xFFFF;

/// Values of 16- or 32-bit fields whose value is in the 64-bit part.
constexpr uint16_t kIn64Bits16 = 0xFFFF;
constexpr uint32_t kIn64Bits32 = 0xFFFFFFFF;

} // namespace zip

namespace {

template <typename T>
T number_at(std::string_view bytes, size_t offset) {
  T value{};
  TORCH_INTERNAL_ASSERT(offset + sizeof(T) <= bytes.size());
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

constexpr auto u16_at = number_at<uint16_t>;
constexpr auto u32_at = number_at<uint32_t>;
constexpr auto u64_at = number_at<uint64_t>;

struct Directory {
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t entries = 0;
};

// The position of the end record: the last end record whose comment reaches the
// end of the file.
uint64_t find_end(const ByteSource& source) {
  const auto size = source.size();
  const auto tail_size = std::min(size, zip::kEndSize + zip::kMaxComment);
  const auto tail = source.text(size - tail_size, tail_size);
  for (auto left = zip::kEndSize; left <= tail_size; ++left) {
    const auto at = tail_size - left;
    if (u32_at(tail, at) == zip::kEnd &&
        u16_at(tail, at + 20) == left - zip::kEndSize) {
      return size - left;
    }
  }
  std::array<char, 4> start{};
  source.read(0, start.data(), std::min<uint64_t>(size, start.size()));
  const bool zip_start =
      u32_at({start.data(), start.size()}, 0) == zip::kLocalHeader;
  DDP_THROW(
      Error,
      "{}its {} bytes do not end with a zip file's directory{}",
      zip_start || size < zip::kEndSize ? "truncated: " : "not a zip file: ",
      size,
      zip_start ? "; restore the file from a copy" : "");
}

// The 64-bit end record, which precedes its locator at `locator`.
Directory read_end64(const ByteSource& source, uint64_t locator, uint64_t at) {
  DDP_CHECK(
      locator >= zip::kEnd64Size && at <= locator - zip::kEnd64Size,
      "corrupt: its 64-bit end record is at byte {}, after its locator at {}",
      at,
      locator);
  const auto end = source.text(at, zip::kEnd64Size);
  DDP_CHECK(
      u32_at(end, 0) == zip::kEnd64 &&
          u64_at(end, 4) == locator - at - zip::kEnd64Uncounted,
      "corrupt: no 64-bit end record at byte {}",
      at);
  DDP_CHECK(
      u32_at(end, 16) == 0 && u32_at(end, 20) == 0 &&
          u64_at(end, 24) == u64_at(end, 32),
      "it is one part of a multi-part zip file");
  return {u64_at(end, 48), u64_at(end, 40), u64_at(end, 32)};
}

// The fields of the short end record must match the 64-bit record.
void check_short(uint64_t seen, uint64_t escape, uint64_t expected) {
  DDP_CHECK(
      seen == escape || seen == expected,
      "corrupt: its end records differ: {} and {}",
      seen,
      expected);
}

Directory find_directory(const ByteSource& source) {
  auto position = find_end(source);
  const auto end = source.text(position, zip::kEndSize);
  DDP_CHECK(
      u16_at(end, 4) == 0 && u16_at(end, 6) == 0 &&
          u16_at(end, 8) == u16_at(end, 10),
      "it is one part of a multi-part zip file");
  Directory directory{u32_at(end, 16), u32_at(end, 12), u16_at(end, 10)};
  if (position >= zip::kEnd64LocatorSize) {
    const auto at = position - zip::kEnd64LocatorSize;
    const auto locator = source.text(at, zip::kEnd64LocatorSize);
    if (u32_at(locator, 0) == zip::kEnd64Locator) {
      position = u64_at(locator, 8);
      const auto wide = read_end64(source, at, position);
      check_short(directory.offset, zip::kIn64Bits32, wide.offset);
      check_short(directory.size, zip::kIn64Bits32, wide.size);
      check_short(directory.entries, zip::kIn64Bits16, wide.entries);
      directory = wide;
    }
  }
  DDP_CHECK(
      directory.offset <= position &&
          directory.size == position - directory.offset,
      "corrupt: its directory of {} bytes at byte {} does not end where the "
      "end record begins, at {}",
      directory.size,
      directory.offset,
      position);
  DDP_CHECK(
      directory.entries <= directory.size / zip::kCentralHeaderSize,
      "corrupt: a directory of {} bytes cannot have {} records",
      directory.size,
      directory.entries);
  return directory;
}

// Reads the values that do not fit into 32 bits, in the header's order.
void read_extra64(
    std::string_view extra,
    const std::string& name,
    const std::vector<uint64_t*>& wanted) {
  while (!wanted.empty()) {
    DDP_CHECK(
        extra.size() >= zip::kExtraHeaderSize,
        "corrupt: record '{}' has no 64-bit sizes",
        name);
    const auto id = u16_at(extra, 0);
    const uint64_t size = u16_at(extra, 2);
    extra.remove_prefix(zip::kExtraHeaderSize);
    if (id == zip::kExtra64 && size <= extra.size() &&
        size >= sizeof(uint64_t) * wanted.size()) {
      for (size_t i = 0; i < wanted.size(); ++i) {
        *wanted[i] = u64_at(extra, sizeof(uint64_t) * i);
      }
      return;
    }
    extra.remove_prefix(std::min<uint64_t>(size, extra.size()));
  }
}

// Removes the first record from the rest of the directory.
ZipRecord take_record(std::string_view& directory) {
  DDP_CHECK(
      directory.size() >= zip::kCentralHeaderSize &&
          u32_at(directory, 0) == zip::kCentralHeader,
      "corrupt: its directory has no record where one is expected");
  const uint64_t name_size = u16_at(directory, 28);
  const uint64_t extra_size = u16_at(directory, 30);
  const auto size =
      zip::kCentralHeaderSize + name_size + extra_size + u16_at(directory, 32);
  DDP_CHECK(
      size <= directory.size(),
      "corrupt: its directory ends in the middle of a record");
  ZipRecord record;
  record.name = directory.substr(zip::kCentralHeaderSize, name_size);
  DDP_CHECK(
      (u16_at(directory, 8) & zip::kEncrypted) == 0,
      "record '{}' is encrypted",
      record.name);
  record.compressed = u16_at(directory, 10) != zip::kStored;
  record.crc = u32_at(directory, 16);
  record.size = u32_at(directory, 24);
  record.header = u32_at(directory, 42);
  record.stored_size = u32_at(directory, 20);
  std::vector<uint64_t*> wanted;
  for (auto* field : {&record.size, &record.stored_size, &record.header}) {
    if (*field == zip::kIn64Bits32) {
      wanted.push_back(field);
    }
  }
  read_extra64(
      directory.substr(zip::kCentralHeaderSize + name_size, extra_size),
      record.name,
      wanted);
  DDP_CHECK(
      record.compressed || record.stored_size == record.size,
      "corrupt: uncompressed record '{}' has {} bytes, but a stored size of {}",
      record.name,
      record.size,
      record.stored_size);
  directory.remove_prefix(size);
  return record;
}

void check_crc(const ZipRecord& record, uint32_t crc) {
  DDP_CHECK(
      crc == record.crc,
      "corrupt: the content of record '{}' has the CRC-32 {}, but the "
      "directory says {}; restore the file from a copy",
      record.name,
      crc,
      record.crc);
}

void check_stored(const ZipRecord& record) {
  DDP_CHECK(
      !record.compressed,
      "record '{}' is compressed; torch.save stores records uncompressed",
      record.name);
}

// Calls `read`, which passes a record's contents on, and checks them if `check`
// is true.
template <typename Read>
void read_checked(const ZipRecord& record, bool check, const Read& read) {
  check_stored(record);
  uint32_t crc = 0;
  read([&](const void* data, size_t bytes) { crc = crc32(crc, data, bytes); });
  if (check) {
    check_crc(record, crc);
  }
}

} // namespace

ZipReader::ZipReader(const ByteSource& source) : source_(source) {
  const auto directory = find_directory(source_);
  const auto text = source_.text(directory.offset, directory.size);
  std::string_view rest = text;
  records_.reserve(directory.entries);
  for (uint64_t i = 0; i < directory.entries; ++i) {
    records_.push_back(take_record(rest));
    const auto& name = records_.back().name;
    DDP_CHECK(by_name_.emplace(name, i).second, "duplicate record '{}'", name);
  }
  DDP_CHECK(
      rest.empty(),
      "corrupt: its directory has {} bytes more than its {} records need",
      rest.size(),
      directory.entries);
  for (auto& record : records_) {
    find_content(record);
    // No flipped bit, in one record, makes all of them 0.
    has_checksums_ = has_checksums_ || record.crc != 0;
  }
  std::vector<ZipRecord*> order;
  for (auto& record : records_) {
    order.push_back(&record);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return a->header < b->header;
  });
  check_overlaps(order, directory.offset);
}

void ZipReader::find_content(ZipRecord& record) const {
  const auto bytes = zip::kLocalHeaderSize + record.name.size();
  DDP_CHECK(
      record.header <= source_.size() &&
          bytes <= source_.size() - record.header,
      "corrupt: record '{}' begins at byte {}, but the file has {} bytes",
      record.name,
      record.header,
      source_.size());
  const auto header = source_.text(record.header, bytes);
  DDP_CHECK(
      u32_at(header, 0) == zip::kLocalHeader &&
          u16_at(header, 26) == record.name.size() &&
          header.compare(
              zip::kLocalHeaderSize, record.name.size(), record.name) == 0,
      "corrupt: record '{}' does not begin at byte {}",
      record.name,
      record.header);
  DDP_CHECK(
      (u16_at(header, 8) != zip::kStored) == record.compressed,
      "corrupt: the directory and the local header of record '{}' differ in "
      "compression",
      record.name);
  if ((u16_at(header, 6) & zip::kSizesFollow) == 0) {
    check_crc(record, u32_at(header, 14));
  }
  record.offset = record.header + bytes + u16_at(header, 28);
}

void ZipReader::check_overlaps(
    const std::vector<ZipRecord*>& order,
    uint64_t directory) {
  for (size_t i = 0; i < order.size(); ++i) {
    const auto& record = *order[i];
    const auto limit = i + 1 < order.size() ? order[i + 1]->header : directory;
    DDP_CHECK(
        record.offset <= limit && record.stored_size <= limit - record.offset,
        "corrupt: the {} bytes of record '{}' at byte {} overlap the next "
        "part, at {}",
        record.stored_size,
        record.name,
        record.offset,
        limit);
  }
}

const ZipRecord* ZipReader::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &records_[found->second];
}

at::Tensor ZipReader::tensor(const ZipRecord& record, bool verify) const {
  if (!verify) {
    check_stored(record);
    return source_.tensor(record.offset, record.size, nullptr);
  }
  at::Tensor result;
  read_checked(record, has_checksums_, [&](const SeeBytes& see) {
    result = source_.tensor(record.offset, record.size, see);
  });
  return result;
}

std::string ZipReader::text(const ZipRecord& record) const {
  std::string result;
  read_checked(record, has_checksums_, [&](const SeeBytes& see) {
    result = source_.text(record.offset, record.size);
    see(result.data(), result.size());
  });
  return result;
}

void ZipReader::verify(const ZipRecord& record) const {
  read_checked(record, has_checksums_, [&](const SeeBytes& see) {
    source_.scan(record.offset, record.size, see);
  });
}

} // namespace ddp::detail
