#include <ddp/internal/check.h>
#include <ddp/rendezvous/rank_info.h>
#include <nlohmann/json.hpp>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ddp::RankInfo own;
  own.options = {{"backend", "gloo"}};
  own.times = {{"DDP_TIMEOUT", "600 s"}};
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto other = ddp::to_rank_info(ddp::parse_message(text));
    ddp::different_times({own, other}, "h:1");
    ddp::check_same_options({own, other}, "h:1");
  } catch (const c10::Error&) {
  }
  return 0;
}
