#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include <launcher/listener.h>

namespace ddp {

/// Tells whoever connects which rank is here, and what time it is.
class Responder {
 public:
  Responder(Listener listener, int rank);
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;
  ~Responder();

  int port() const {
    return listener_.port;
  }

 private:
  void serve();

  Listener listener_;
  int rank_;
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

/// What a Responder said.
struct Answer {
  int rank = -1;
  /// How far its clock is ahead of the one here.
  double clock_offset = 0; // seconds
  double round_trip = 0; // seconds
};

/// Asks whoever listens at a numeric address. None where nobody answers within
/// two seconds, and `error` says why.
std::optional<Answer> ask(
    const std::string& address,
    int port,
    std::string* error);

} // namespace ddp
