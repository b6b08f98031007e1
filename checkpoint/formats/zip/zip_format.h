#pragma once

#include <cstdint>

// The numbers of the zip format (PKWARE's APPNOTE.TXT, 4.3 and 4.5).
namespace ddp::detail::zip {

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
/// Of the fixed part of kEnd64, those bytes are not in its own size field.
constexpr uint64_t kEnd64Uncounted = 12;

constexpr uint16_t kEncrypted = 1;
constexpr uint16_t kSizesFollow = 1 << 3;
constexpr uint16_t kUtf8Name = 1 << 11;

constexpr uint16_t kStored = 0;
constexpr uint16_t kVersion = 45; // the first with 64-bit sizes

constexpr uint16_t kExtra64 = 1;
constexpr uint16_t kExtraPadding = 0x4246; // "FB", as LibTorch calls it
constexpr uint64_t kExtraHeaderSize = 4;

/// In a field of 16 or 32 bits: the value stands in the 64-bit part.
constexpr uint16_t kIn64Bits16 = 0xFFFF;
constexpr uint32_t kIn64Bits32 = 0xFFFFFFFF;

/// In files that this library wrote the last record has the digest of each
/// other's content, a line "digest  name" each, and the comment at the end of
/// the file, after these words, that of all bytes before it that are not such
/// content: no byte is outside of both.
constexpr const char* kDigestRecord = "archive/ddp/digests";
constexpr const char* kDigestComment = "ddp.xxh3 ";

} // namespace ddp::detail::zip
