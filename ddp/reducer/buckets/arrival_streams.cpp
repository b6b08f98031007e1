#include <ddp/reducer/buckets/arrival_streams.h>

#include <c10/core/Event.h>
#include <ddp/support/current_stream.h>

#include <algorithm>

namespace ddp::detail {

void ArrivalStreams::add(c10::Device device) {
  const auto stream = current_stream(device);
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
    streams_.push_back(stream);
  }
}

bool ArrivalStreams::join(c10::Device device) {
  bool crossed = false;
  for (const auto& stream : streams_) {
    const auto current = current_stream(device);
    if (stream != current) {
      c10::Event event(device.type());
      event.record(stream);
      event.block(current);
      crossed = true;
    }
  }
  streams_.clear();
  return crossed;
}

} // namespace ddp::detail
