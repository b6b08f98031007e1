// The signatures of a job's agents.
#include <tests/support/catch_plain.h>
#include <tests/support/skip.h>

#include <common/text.h>
#include <launcher/rendezvous/authentication.h>
#include <tests/launcher/launched_job.h>

namespace ddp::test::authentication_test {

TEST_CASE("the MAC is Python's for texts and keys of any length", "[unit]") {
  // Byte i of a text of n is (7 i + n) % 256, of its key (5 i + n) % 256.
  const auto python = run(
      Command{
          {"python3",
           "-c",
           "import hmac\n"
           "for n in range(301):\n"
           "  key = bytes((5 * i + n) % 256 for i in range(300 - n))\n"
           "  text = bytes((7 * i + n) % 256 for i in range(n))\n"
           "  print(hmac.new(key, text, 'sha256').hexdigest())"},
          {}},
      kLong);
  if (python.exit_code == 127) {
    skip("there is no python3");
  }
  const auto lines = split_lines(python.output);
  REQUIRE(lines.size() == 301);
  for (int n = 0; n <= 300; ++n) {
    std::string key;
    std::string text;
    for (int i = 0; i < 300 - n; ++i) {
      key += static_cast<char>(5 * i + n);
    }
    for (int i = 0; i < n; ++i) {
      text += static_cast<char>(7 * i + n);
    }
    const std::string mac = sha256_hmac(key, text);
    CHECK(hex(mac.data(), mac.size()) == lines[n]);
  }
}

TEST_CASE("a sealed message opens with what it was sealed with", "[unit]") {
  Authenticator ours("token", "job");
  ours.set_nonce("nonce");
  const std::string text("a plan\0 of bytes\xff", 17);
  const std::string sealed = ours.seal(text);
  CHECK(sealed.size() == 64 + text.size());
  CHECK(ours.open(sealed) == text);
  CHECK(ours.open(ours.seal("")) == "");

  Authenticator other_token("tokem", "job");
  Authenticator other_job("token", "jobs");
  Authenticator other_nonce("token", "job");
  other_token.set_nonce("nonce");
  other_job.set_nonce("nonce");
  other_nonce.set_nonce("nonc");
  CHECK_FALSE(other_token.open(sealed));
  CHECK_FALSE(other_job.open(sealed));
  CHECK_FALSE(other_nonce.open(sealed));
}

TEST_CASE("what is signed tells its parts apart", "[unit]") {
  Authenticator one("token", "j");
  Authenticator other("token", "j");
  one.set_nonce("aj");
  other.set_nonce("a");
  CHECK_FALSE(other.open(one.seal("t").substr(0, 64) + "jt"));
}

TEST_CASE("a sealed message that was changed does not open", "[unit]") {
  const Authenticator ours("token", "job");
  const std::string sealed = ours.seal("a text");
  for (size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    std::string changed = sealed;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    CHECK_FALSE(ours.open(changed));
  }
  for (size_t size = 0; size < sealed.size(); ++size) {
    CHECK_FALSE(ours.open(sealed.substr(0, size)));
  }
  CHECK_FALSE(ours.open(sealed + "."));
}

TEST_CASE("random bytes are in hex and differ", "[unit]") {
  const std::string one = random_hex(16);
  CHECK(one.size() == 32);
  CHECK(one.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(one != random_hex(16));
  CHECK(random_hex(0).empty());
}

} // namespace ddp::test::authentication_test
