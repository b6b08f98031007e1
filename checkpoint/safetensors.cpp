#include <checkpoint/formats/common/checksum.h>
#include <checkpoint/formats/common/naming_file.h>
#include <checkpoint/formats/safetensors_header.h>
#include <checkpoint/formats/safetensors_reader.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/internal/check.h>
#include <ddp/support/atomic_file.h>
#include <ddp/support/plain_tensor.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error \
    "safetensors files are little-endian: a little-endian machine is required"
#endif

namespace ddp {
namespace {

constexpr size_t kLengthBytes = sizeof(uint64_t); // the header's length
constexpr uint64_t kMaxHeaderBytes = 100'000'000; // the format's limit

// The tensors' positions in the order of their bytes in the file: wide dtypes
// first, so that all are aligned for readers that map the file.
std::vector<size_t> data_order(const StateDict& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensors[a]->element_size() > tensors[b]->element_size();
  });
  return order;
}

detail::SafetensorsHeader header_of(
    const StateDict& tensors,
    const std::vector<size_t>& order) {
  detail::SafetensorsHeader header;
  for (const auto& item : tensors) {
    const auto& tensor = item.value();
    header.entries.push_back(
        {item.key(), tensor.scalar_type(), tensor.sizes().vec()});
  }
  uint64_t position = 0;
  for (const auto i : order) {
    header.entries[i].begin = position;
    position += tensors[i]->nbytes();
    header.entries[i].end = position;
  }
  return header;
}

void check_tensors(const StateDict& tensors) {
  for (const auto& item : tensors) {
    detail::check_readable(item.value(), "tensor '" + item.key() + "'");
  }
}

std::string checksum_of(const at::Tensor& tensor) {
  detail::Checksum checksum;
  checksum.add(tensor.const_data_ptr(), tensor.nbytes());
  return checksum.hex();
}

at::Tensor read_tensor(
    const detail::ByteSource& file,
    uint64_t data_offset,
    const detail::TensorEntry& entry,
    const std::string& expected) {
  detail::Checksum checksum;
  const auto bytes = file.tensor(
      data_offset + entry.begin,
      entry.end - entry.begin,
      [&](const void* data, size_t count) { checksum.add(data, count); });
  DDP_CHECK(
      expected.empty() || checksum.hex() == expected,
      "corrupt: tensor '{}' has the checksum {}, but the header says {}; "
      "restore the file from a copy",
      entry.name,
      checksum.hex(),
      expected);
  return bytes;
}

} // namespace

bool detail::is_safetensors(const ByteSource& file, const std::string& path) {
  // At this offset, a zip file has the number of a compression method, which is
  // never '{'.
  if (file.size() > kLengthBytes && file.text(kLengthBytes, 1) == "{") {
    return true;
  }
  const bool zip = file.size() >= 4 && file.text(0, 4) == "PK\x03\x04";
  return !zip && std::filesystem::path(path).extension() == ".safetensors";
}

detail::SafetensorsHeader detail::read_safetensors_header(
    const ByteSource& file) {
  DDP_CHECK(
      file.size() >= kLengthBytes,
      "truncated: it has {} bytes, but the length field alone has {}",
      file.size(),
      kLengthBytes);
  uint64_t header_bytes = 0;
  file.read(0, &header_bytes, kLengthBytes);
  DDP_CHECK(
      header_bytes <= kMaxHeaderBytes,
      "not a safetensors file: its header has {} bytes, but the format allows "
      "at most {}",
      header_bytes,
      kMaxHeaderBytes);
  const auto rest = file.size() - kLengthBytes;
  DDP_CHECK(
      header_bytes <= rest,
      "truncated: its header has {} bytes, but only {} follow",
      header_bytes,
      rest);
  auto header =
      parse_header(file.text(kLengthBytes, header_bytes), rest - header_bytes);
  header.data_offset = kLengthBytes + header_bytes;
  return header;
}

SafetensorsFile detail::read_safetensors(const ByteSource& file, bool verify) {
  auto header = read_safetensors_header(file);
  SafetensorsFile result;
  result.metadata = std::move(header.metadata);
  for (size_t i = 0; i < header.entries.size(); ++i) {
    const auto& entry = header.entries[i];
    const auto checksum = header.checksums.empty()
        ? ""
        : header.checksums.substr(kChecksumSize * (1 + i), kChecksumSize);
    const auto bytes = verify
        ? read_tensor(file, header.data_offset, entry, checksum)
        : file.tensor(
              header.data_offset + entry.begin,
              entry.end - entry.begin,
              nullptr);
    result.tensors.insert(
        entry.name, bytes.view(entry.dtype).view(entry.shape));
  }
  return result;
}

SafetensorsFile detail::read_safetensors(
    const std::string& path,
    FileAccess access) {
  return naming_file(path, [&] {
    const FileSource file(path);
    return read_file(file, access, [](const ByteSource& source) {
      return read_safetensors(source);
    });
  });
}

SafetensorsFile read_safetensors(const std::string& path) {
  return detail::read_safetensors(path, detail::FileAccess::kCopy);
}

void write_safetensors(
    const std::string& path,
    const StateDict& tensors,
    const SafetensorsMetadata& metadata) {
  detail::write_safetensors(path, tensors, metadata, nullptr);
}

void detail::write_safetensors(
    const std::string& path,
    const StateDict& tensors,
    const SafetensorsMetadata& metadata,
    const std::function<void()>& check) {
  check_tensors(tensors);
  const auto order = data_order(tensors);
  auto header = header_of(tensors, order);
  header.metadata = metadata;
  auto text = detail::format_header(header);
  const uint64_t header_bytes = text.size();
  DDP_CHECK_VALUE(
      header_bytes <= kMaxHeaderBytes,
      "cannot write '{}': names, shapes and metadata need {} bytes, but the "
      "format allows at most {}",
      path,
      header_bytes,
      kMaxHeaderBytes);

  detail::AtomicFile file(path);
  file.write(&header_bytes, kLengthBytes);
  file.write(text.data(), text.size());
  for (const auto i : order) {
    const auto tensor = detail::plain_tensor(*tensors[i]);
    file.write(tensor.const_data_ptr(), tensor.nbytes());
    text.replace(
        detail::kChecksumOffset + detail::kChecksumSize * (1 + i),
        detail::kChecksumSize,
        checksum_of(tensor));
  }
  text.replace(
      detail::kChecksumOffset,
      detail::kChecksumSize,
      detail::header_checksum(text));
  file.overwrite(kLengthBytes, text.data(), text.size());
  file.commit(check);
}

} // namespace ddp
