#include <launcher/rendezvous/authentication.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <unistd.h>

#include <common/file_descriptor.h>

namespace ddp {
namespace {

constexpr size_t kBlockSize = 64; // of SHA-256
constexpr size_t kMacSize = 64; // in hex

using State = std::array<uint32_t, 8>;

constexpr State kFirstState = {
    0x6a09e667,
    0xbb67ae85,
    0x3c6ef372,
    0xa54ff53a,
    0x510e527f,
    0x9b05688c,
    0x1f83d9ab,
    0x5be0cd19};

constexpr std::array<uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t rotate_right(uint32_t word, int bits) {
  return word >> bits | word << (32 - bits);
}

void append_big_endian(std::string& bytes, uint64_t number, int size) {
  for (int shift = 8 * (size - 1); shift >= 0; shift -= 8) {
    bytes += static_cast<char>(number >> shift);
  }
}

std::array<uint32_t, 64> schedule(const char* block) {
  std::array<uint32_t, 64> words{};
  for (size_t i = 0; i < kBlockSize; ++i) {
    words[i / 4] = words[i / 4] << 8 | static_cast<unsigned char>(block[i]);
  }
  for (size_t i = 16; i < words.size(); ++i) {
    const uint32_t a = words[i - 15];
    const uint32_t b = words[i - 2];
    words[i] = words[i - 16] +
        (rotate_right(a, 7) ^ rotate_right(a, 18) ^ a >> 3) + words[i - 7] +
        (rotate_right(b, 17) ^ rotate_right(b, 19) ^ b >> 10);
  }
  return words;
}

void add_block(State& state, const char* block) {
  const auto words = schedule(block);
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < words.size(); ++i) {
    const uint32_t first = h +
        (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) +
        ((e & f) ^ (~e & g)) + kRoundConstants[i] + words[i];
    const uint32_t second =
        (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) +
        ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const State added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i) {
    state[i] += added[i];
  }
}

// FIPS 180-4: 32 raw bytes. Implemented here, since the launcher links no
// library with SHA-256.
std::string sha256(const std::string& text) {
  std::string padded = text + '\x80';
  while (padded.size() % kBlockSize != kBlockSize - 8) {
    padded += '\0';
  }
  append_big_endian(padded, uint64_t{8} * text.size(), 8);
  State state = kFirstState;
  for (size_t i = 0; i < padded.size(); i += kBlockSize) {
    add_block(state, &padded[i]);
  }
  std::string digest;
  for (uint32_t word : state) {
    append_big_endian(digest, word, 4);
  }
  return digest;
}

std::string to_hex(const std::string& bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const char each : bytes) {
    const auto byte = static_cast<unsigned char>(each);
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string with_length(const std::string& text) {
  return std::to_string(text.size()) + ":" + text;
}

// Takes a time that does not depend on where the texts differ.
bool equal(const std::string& one, const std::string& other) {
  unsigned difference = one.size() == other.size() ? 0 : 1;
  for (size_t i = 0; i < one.size() && i < other.size(); ++i) {
    difference |= static_cast<unsigned char>(one[i] ^ other[i]);
  }
  return difference == 0;
}

} // namespace

std::string sha256_hmac(const std::string& key, const std::string& text) {
  std::string block = key.size() > kBlockSize ? sha256(key) : key;
  block.resize(kBlockSize);
  std::string inner = block;
  std::string outer = block;
  for (size_t i = 0; i < kBlockSize; ++i) {
    inner[i] = static_cast<char>(block[i] ^ 0x36);
    outer[i] = static_cast<char>(block[i] ^ 0x5c);
  }
  return sha256(outer + sha256(inner + text));
}

std::string random_hex(size_t bytes) {
  std::string random(bytes, '\0');
  check_call(
      getentropy(random.data(), random.size()), "cannot read random bytes");
  return to_hex(random);
}

Authenticator::Authenticator(const std::string& token, const std::string& job)
    : key_(sha256_hmac(token, "ddprun " + job)), job_(job) {}

std::string Authenticator::seal(const std::string& text) const {
  return mac(text) + text;
}

std::optional<std::string> Authenticator::open(
    const std::string& sealed) const {
  const size_t size = std::min(sealed.size(), kMacSize);
  std::string text = sealed.substr(size);
  const bool is_right = equal(sealed.substr(0, size), mac(text));
  return is_right ? std::make_optional(std::move(text)) : std::nullopt;
}

std::string Authenticator::mac(const std::string& text) const {
  return to_hex(sha256_hmac(
      key_, with_length(nonce_) + with_length(job_) + with_length(text)));
}

} // namespace ddp
