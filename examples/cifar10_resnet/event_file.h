#pragma once

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

/// Scalars over steps, in a file that TensorBoard reads: `tensorboard --logdir
/// FOLDER`. The file is a sequence of TFRecords, each an `Event` of
/// tensorflow/core/util/event.proto, with the few fields that are needed.
class EventFile {
 public:
  /// Creates `folder`, and a new file in it. Viewers then ignore the data of
  /// earlier files from `step` on, since a resumed run writes that data again.
  /// The constructor, `add` and `flush` throw `std::runtime_error` if the file
  /// cannot be written.
  EventFile(const std::string& folder, int64_t step) {
    std::filesystem::create_directories(folder);
    // Viewers read the files of a folder in the order of their names.
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto us =
        std::chrono::duration_cast<std::chrono::microseconds>(now).count();
    path_ = folder + "/events.out.tfevents." + std::to_string(us) + "." +
        std::to_string(getpid());
    file_.open(path_, std::ios::binary);
    write(event(0) + content(kFileVersion, "brain.Event:2"));
    write(event(step) + content(kSessionLog, number(kStatus, kStart)));
    flush();
  }

  /// Adds a value of a tag such as "test/accuracy"; viewers group tags by the
  /// part before the slash.
  void add(const std::string& tag, int64_t step, double value) {
    const auto as_float = static_cast<float>(value);
    const auto scalar =
        content(kTag, tag) + key(kSimpleValue, kFixed32) + bytes_of(as_float);
    write(event(step) + content(kSummary, content(kValue, scalar)));
  }

  /// Makes the added values visible to viewers.
  void flush() {
    if (!file_.flush()) {
      throw std::runtime_error("cannot write to " + path_);
    }
  }

 private:
  enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  // Event
  static constexpr int kWallTime = 1;
  static constexpr int kStep = 2;
  static constexpr int kFileVersion = 3;
  static constexpr int kSummary = 5;
  static constexpr int kSessionLog = 7;
  // Summary, Summary.Value and SessionLog
  static constexpr int kValue = 1;
  static constexpr int kTag = 1;
  static constexpr int kSimpleValue = 2;
  static constexpr int kStatus = 1;
  static constexpr int kStart = 1;

  /// The bytes of a number, little-endian as in protobuf and TFRecord, and on
  /// x86-64 and aarch64.
  template <typename Number>
  static std::string bytes_of(Number number) {
    std::string bytes(sizeof(number), '\0');
    std::memcpy(bytes.data(), &number, sizeof(number));
    return bytes;
  }

  static std::string varint(uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) {
      bytes += static_cast<char>(value | 0x80);
    }
    return bytes + static_cast<char>(value);
  }

  static std::string key(int field, Wire wire) {
    return varint(static_cast<uint64_t>(field) << 3 | wire);
  }

  static std::string number(int field, int64_t value) {
    return key(field, kVarint) + varint(static_cast<uint64_t>(value));
  }

  static std::string content(int field, const std::string& bytes) {
    return key(field, kBytes) + varint(bytes.size()) + bytes;
  }

  /// An event with the current time.
  static std::string event(int64_t step) {
    const std::chrono::duration<double> now =
        std::chrono::system_clock::now().time_since_epoch();
    return key(kWallTime, kFixed64) + bytes_of(now.count()) +
        number(kStep, step);
  }

  /// CRC-32C, bit-reversed, masked as in TFRecord: a checksum of bytes that
  /// contain checksums would be weak.
  static uint32_t masked_crc(const std::string& bytes) {
    static const auto table = [] {
      std::array<uint32_t, 256> result{};
      for (uint32_t i = 0; i < 256; ++i) {
        result[i] = i;
        for (int bit = 0; bit < 8; ++bit) {
          result[i] = result[i] >> 1 ^ (result[i] & 1 ? 0x82f63b78 : 0);
        }
      }
      return result;
    }();
    uint32_t crc = 0xffffffff;
    for (const unsigned char byte : bytes) {
      crc = table[(crc ^ byte) & 0xff] ^ crc >> 8;
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8;
  }

  void write(const std::string& record) {
    const auto length = bytes_of(uint64_t{record.size()});
    file_ << length << bytes_of(masked_crc(length)) << record
          << bytes_of(masked_crc(record));
    if (!file_) {
      throw std::runtime_error("cannot write to " + path_);
    }
  }

  std::string path_;
  std::ofstream file_;
};
