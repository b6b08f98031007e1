#include <cstdlib>
#include <string>

#include <launcher/rendezvous/log/block.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string block(reinterpret_cast<const char*>(data), size);
  std::string again;
  ddp::read_block_entries(block, [&](const std::string& entry) {
    ddp::add_block_entry(entry, &again);
  });
  std::string third;
  ddp::read_block_entries(again, [&](const std::string& entry) {
    ddp::add_block_entry(entry, &third);
  });
  if (third != again) {
    std::abort();
  }
  return 0;
}
