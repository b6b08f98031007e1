#include <cstdlib>
#include <string>

#include <launcher/rendezvous/authentication.h>
#include <launcher/rendezvous/log/entry.h>

static void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ddp::Authenticator key("token", "job");
  const std::string text(reinterpret_cast<const char*>(data), size);
  require(!key.open(text) && key.open(key.seal(text)) == text);
  if (const auto entry = ddp::parse_entry(text)) {
    const auto written = ddp::entry_text(*entry);
    const auto again = ddp::parse_entry(written);
    require(again && ddp::entry_text(*again) == written);
  }
  return 0;
}
