#include <launcher/rendezvous/authentication.h>

#include <unistd.h>

#include <common/file_descriptor.h>
#include <launcher/rendezvous/sha256.h>

namespace ddp {
namespace {

constexpr size_t kBlockSize = 64; // of SHA-256
constexpr size_t kMacSize = 64; // in hex

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

// In a time that does not tell where they differ.
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
  if (sealed.size() < kMacSize) {
    return std::nullopt;
  }
  std::string text = sealed.substr(kMacSize);
  if (!equal(sealed.substr(0, kMacSize), mac(text))) {
    return std::nullopt;
  }
  return text;
}

std::string Authenticator::mac(const std::string& text) const {
  return to_hex(sha256_hmac(
      key_, with_length(nonce_) + with_length(job_) + with_length(text)));
}

} // namespace ddp
