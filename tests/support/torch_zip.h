#pragma once

#include <c10/util/Exception.h>
#include <checkpoint/formats/torch_archive.h>
#include <checkpoint/formats/zip/crc32.h>
#include <tests/support/ivalue_text.h>

#include <cstdint>

namespace ddp::test {

inline std::string u16(uint64_t value) {
  return number(static_cast<uint16_t>(value));
}

inline std::string u32(uint64_t value) {
  return number(static_cast<uint32_t>(value));
}

using ZipContents = std::vector<std::pair<std::string, std::string>>;

/// A zip file like those of torch.save: the sizes follow the content, and
/// readers use the directory's values.
inline std::string zip_of(const ZipContents& records, uint16_t method = 0) {
  std::string text, directory;
  for (const auto& [name, content] : records) {
    const auto crc = u32(detail::crc32(0, content.data(), content.size()));
    const auto size = u32(content.size());
    directory += "PK\x01\x02" + u16(0) + u16(0) + u16(0x0808) + u16(method) +
        u32(0) + crc + size + size + u16(name.size()) + u16(0) + u16(0) +
        u16(0) + u16(0) + u32(0) + u32(text.size()) + name;
    text += "PK\x03\x04" + u16(0) + u16(0x0808) + u16(method) + u32(0) +
        u32(0) + u32(0) + u32(0) + u16(name.size()) + u16(0) + name + content +
        "PK\x07\x08" + crc + size + size;
  }
  const auto count = u16(records.size());
  return text + directory + "PK\x05\x06" + u32(0) + count + count +
      u32(directory.size()) + u32(text.size()) + u16(0);
}

/// Opcodes of a pickle.
inline std::string unicode(const std::string& text) {
  return "X" + u32(text.size()) + text;
}

inline std::string integer(int32_t value) {
  return "J" + number(value);
}

inline std::string long_integer(int64_t value) {
  return "\x8a\x08" + number(value);
}

/// A reference to storage `key` with this number of elements.
inline std::string storage_of(
    const std::string& type,
    const std::string& key,
    const std::string& elements) {
  return "(" + unicode("storage") + "c" + type + unicode(key) +
      unicode("cuda:0") + elements + "tQ";
}

/// A call of a function with arguments given as opcodes.
inline std::string call_of(
    const std::string& function,
    const std::string& arguments) {
  return "c" + function + "(" + arguments + "tR";
}

inline const std::string kFloatStorage = "torch\nFloatStorage\n";
inline const std::string kRebuildV2 = "torch._utils\n_rebuild_tensor_v2\n";
inline const std::string kOrderedDict = "ccollections\nOrderedDict\n)R";

/// A file with this pickle, and with storage "0" of four floats.
inline std::string torch_file_of(const std::string& pickle) {
  return zip_of(
      {{"a/data.pkl", "\x80\x02" + pickle + "."},
       {"a/data/0", number(1.F) + number(2.F) + number(3.F) + number(4.F)},
       {"a/version", "3\n"}});
}

using namespace std::string_literals;

/// A tensor of the four floats with this offset, size and stride.
inline std::string tensor_of(
    const std::string& offset,
    const std::string& size,
    const std::string& stride,
    const std::string& rest = "\x89" + kOrderedDict) {
  return call_of(
      kRebuildV2,
      storage_of(kFloatStorage, "0", "K\4") + offset + size + stride + rest);
}

inline const std::string kZero = "K\0"s;
inline const std::string kFour = "K\4\x85";
inline const std::string kOne = "K\1\x85";

/// The error of reading these bytes; empty if there is none. Exceptions other
/// than c10::Error (std::bad_alloc) propagate.
inline std::string complaint(const std::string& bytes) {
  return words_of([&] {
    const ddp::detail::MemorySource source(bytes.data(), bytes.size());
    ddp::detail::TorchArchive(source).value();
  });
}

inline c10::IValue value_of(const std::string& bytes) {
  const ddp::detail::MemorySource source(bytes.data(), bytes.size());
  return ddp::detail::TorchArchive(source).value();
}

} // namespace ddp::test
