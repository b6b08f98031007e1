#pragma once

namespace ddp::detail {

/// While it lives, a name server that does not answer keeps this thread for one
/// second per lookup, and not for ten, and the process does not warn of it.
/// LibTorch looks up the name of each address that its store connects to, to
/// show it in messages.
class DnsTimeoutGuard {
 public:
  DnsTimeoutGuard();
  DnsTimeoutGuard(const DnsTimeoutGuard&) = delete;
  DnsTimeoutGuard& operator=(const DnsTimeoutGuard&) = delete;
  ~DnsTimeoutGuard();

 private:
  int seconds_ = 0;
  int attempts_ = 0;
};

} // namespace ddp::detail
