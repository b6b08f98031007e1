#include <checkpoint/formats/zip/crc32.h>

#include <array>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the checksum takes words from memory as little-endian ones"
#endif

namespace ddp::detail {
namespace {

// Polynomials over GF(2) are reflected here: the highest bit is x^0.
constexpr uint32_t kPolynomial = 0xEDB88320;
constexpr size_t kStride = 16; // bytes that the tables advance at once

constexpr uint32_t times_x(uint32_t value) {
  return (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
}

using Tables = std::array<std::array<uint32_t, 256>, kStride>;

// Table k has the remainders of a byte that k more bytes follow.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = times_x(value);
    }
    tables[0][byte] = value;
  }
  for (size_t k = 1; k < kStride; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const auto before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

// The remainder without the inversions that begin and end a CRC-32.
uint32_t remainder(uint32_t value, const uint8_t* data, size_t bytes) {
  for (; bytes >= kStride; data += kStride, bytes -= kStride) {
    std::array<uint32_t, kStride / sizeof(uint32_t)> words{};
    std::memcpy(words.data(), data, kStride);
    words[0] ^= value;
    value = 0;
    for (size_t i = 0; i < kStride; ++i) {
      const auto byte = words[i / 4] >> (8 * (i % 4)) & 0xFF;
      value ^= kTables[kStride - 1 - i][byte];
    }
  }
  for (; bytes > 0; ++data, --bytes) {
    value = (value >> 8) ^ kTables[0][(value ^ *data) & 0xFF];
  }
  return value;
}

#ifdef __x86_64__

// x^n modulo the polynomial, as a factor for a carry-less product of 64-bit
// words.
constexpr int64_t power_of_x(int n) {
  uint32_t value = 0x80000000;
  for (int i = 0; i < n; ++i) {
    value = times_x(value);
  }
  return static_cast<int64_t>(value) << 1;
}

constexpr size_t kLanes = 4;
constexpr size_t kLaneBytes = 16;
constexpr size_t kBlock = kLanes * kLaneBytes;

__attribute__((target("pclmul,sse4.1"))) __m128i load(const uint8_t* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

// What `value` is worth where `factors` bits more follow.
__attribute__((target("pclmul,sse4.1"))) __m128i advance(
    __m128i value,
    __m128i factors) {
  return _mm_xor_si128(
      _mm_clmulepi64_si128(value, factors, 0x00),
      _mm_clmulepi64_si128(value, factors, 0x11));
}

// Folds the data into 16 bytes of the same remainder; `bytes` is a multiple of
// kBlock and not 0.
__attribute__((target("pclmul,sse4.1"))) uint32_t folded_remainder(
    uint32_t value,
    const uint8_t* data,
    size_t bytes) {
  constexpr int kBlockBits = 8 * kBlock;
  constexpr int kLaneBits = 8 * kLaneBytes;
  const auto over_block =
      _mm_set_epi64x(power_of_x(kBlockBits - 32), power_of_x(kBlockBits + 32));
  const auto over_lane =
      _mm_set_epi64x(power_of_x(kLaneBits - 32), power_of_x(kLaneBits + 32));
  __m128i lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) {
    lanes[i] = load(data + kLaneBytes * i);
  }
  lanes[0] =
      _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(value)));
  for (size_t at = kBlock; at < bytes; at += kBlock) {
    for (size_t i = 0; i < kLanes; ++i) {
      lanes[i] = _mm_xor_si128(
          advance(lanes[i], over_block), load(data + at + kLaneBytes * i));
    }
  }
  for (size_t i = 1; i < kLanes; ++i) {
    lanes[i] = _mm_xor_si128(advance(lanes[i - 1], over_lane), lanes[i]);
  }
  uint8_t rest[kLaneBytes];
  std::memcpy(rest, &lanes[kLanes - 1], kLaneBytes);
  return remainder(0, rest, kLaneBytes);
}

#endif

} // namespace

uint32_t portable_crc32(uint32_t crc, const void* data, size_t bytes) {
  return ~remainder(~crc, static_cast<const uint8_t*>(data), bytes);
}

uint32_t crc32(uint32_t crc, const void* data, size_t bytes) {
#ifdef __x86_64__
  static const bool folds =
      __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  const size_t whole = bytes / kBlock * kBlock;
  if (folds && whole > 0) {
    const auto* start = static_cast<const uint8_t*>(data);
    const auto value = folded_remainder(~crc, start, whole);
    return ~remainder(value, start + whole, bytes - whole);
  }
#endif
  return portable_crc32(crc, data, bytes);
}

} // namespace ddp::detail
