#pragma once

#include <optional>
#include <string>

namespace ddp {

/// HMAC-SHA256 (RFC 2104) of `text`: 32 raw bytes.
std::string sha256_hmac(const std::string& key, const std::string& text);

/// That many bytes, 256 at most, from the kernel's random generator, in hex.
/// Throws std::system_error.
std::string random_hex(size_t bytes);

/// Signs what the agents of a job tell each other, and knows what they did not
/// sign: whoever reaches the store's port can write there. Keeps no secrets:
/// a message can be read by all.
class Authenticator {
 public:
  /// `token` is the job's secret, `job` its name.
  Authenticator(const std::string& token, const std::string& job);

  /// The store's nonce: a message sealed for another store does not open.
  void set_nonce(const std::string& nonce) {
    nonce_ = nonce;
  }

  /// The message: its MAC in hex (64 characters), then the text.
  std::string seal(const std::string& text) const;

  /// The text of a sealed message; none if its MAC is wrong.
  std::optional<std::string> open(const std::string& sealed) const;

 private:
  std::string mac(const std::string& text) const;

  std::string key_;
  std::string job_;
  std::string nonce_;
};

} // namespace ddp
