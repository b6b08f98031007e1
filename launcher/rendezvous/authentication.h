#pragma once

#include <optional>
#include <string>

namespace ddp {

/// HMAC-SHA256 (RFC 2104) of `text`: 32 raw bytes.
std::string sha256_hmac(const std::string& key, const std::string& text);

/// `bytes` bytes, at most 256, from the kernel's random generator, in hex.
/// Throws std::system_error.
std::string random_hex(size_t bytes);

/// Signs the messages between the agents of a job, and detects unsigned ones,
/// since any process that reaches the store's port can write to the store.
/// Messages are not encrypted.
class Authenticator {
 public:
  /// `token` is the job's secret, `job` the job's name.
  Authenticator(const std::string& token, const std::string& job);

  /// Sets the store's nonce: messages sealed for another store are rejected.
  void set_nonce(const std::string& nonce) {
    nonce_ = nonce;
  }

  /// Returns the message: its MAC in hex (64 characters), then the text.
  std::string seal(const std::string& text) const;

  /// Returns the text of a sealed message; none if its MAC is wrong.
  std::optional<std::string> open(const std::string& sealed) const;

 private:
  std::string mac(const std::string& text) const;

  std::string key_;
  std::string job_;
  std::string nonce_;
};

} // namespace ddp
