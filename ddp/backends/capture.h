#pragma once

#include <c10/core/Device.h>

namespace ddp::backends {

/// Whether the current stream of `device` is recorded into a graph, which
/// replays the device's work without the host's code.
bool is_capturing(c10::Device device);

/// Throws `c10::Error` if the current stream of `device` is recorded into a
/// graph. `reason` states why the caller needs the host, and what to do.
void check_not_capturing(c10::Device device, const char* reason);

/// Answers `is_capturing` for the devices that are not CUDA's. The default
/// answer is no.
using CaptureQuery = bool (*)(c10::Device device);
void set_capture_query(CaptureQuery query);

} // namespace ddp::backends
