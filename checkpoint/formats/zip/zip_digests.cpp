#include <c10/util/Exception.h>
#include <checkpoint/formats/common/digest.h>
#include <checkpoint/formats/zip/zip_digests.h>
#include <checkpoint/formats/zip/zip_format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>

namespace ddp::detail {
namespace {

// The digest in the comment at the end of the file, or nothing.
std::string structure_digest(const ByteSource& source) {
  const std::string start = zip::kDigestComment;
  const auto size = start.size() + kDigestSize;
  if (source.size() < size) {
    return "";
  }
  const auto comment = source.text(source.size() - size, size);
  return comment.rfind(start, 0) == 0 ? comment.substr(start.size()) : "";
}

std::string structure_of(
    const ByteSource& source,
    const std::vector<ZipRecord*>& records) {
  Digest digest;
  uint64_t position = 0;
  const auto add_until = [&](uint64_t end) {
    source.scan(position, end - position, [&](const void* data, size_t bytes) {
      digest.add(data, bytes);
    });
  };
  for (const auto* record : records) {
    if (record->name != zip::kDigestRecord) {
      add_until(record->offset);
      position = record->offset + record->stored_size;
    }
  }
  add_until(source.size() - kDigestSize);
  return digest.hex();
}

// By the records' names.
std::map<std::string, std::string> parse(const std::string& text) {
  std::map<std::string, std::string> digests;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > kDigestSize + 2) {
      digests[line.substr(kDigestSize + 2)] = line.substr(0, kDigestSize);
    }
  }
  return digests;
}

} // namespace

void take_digests(
    const ByteSource& source,
    const std::vector<ZipRecord*>& records) {
  const auto expected = structure_digest(source);
  const auto own =
      std::find_if(records.begin(), records.end(), [](const auto* record) {
        return record->name == zip::kDigestRecord;
      });
  if (expected.empty() && own == records.end()) {
    return; // of another program
  }
  TORCH_CHECK(
      !expected.empty() && own != records.end(),
      "damaged: it has one of its record '",
      zip::kDigestRecord,
      "' and its comment '",
      zip::kDigestComment,
      "', not both; restore it from a copy");
  const auto seen = structure_of(source, records);
  TORCH_CHECK(
      seen == expected,
      "damaged: what is around its records has the digest ",
      seen,
      ", it says ",
      expected,
      "; restore it from a copy");
  auto digests = parse(source.text((*own)->offset, (*own)->stored_size));
  for (auto* record : records) {
    record->digest = digests[record->name];
    TORCH_CHECK(
        !record->digest.empty() || record == *own,
        "damaged: it has no digest of record '",
        record->name,
        "'; restore it from a copy");
  }
}

} // namespace ddp::detail
