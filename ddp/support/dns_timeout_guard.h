#pragma once

namespace ddp::detail {

/// While it lives, a name server that does not answer delays this thread by one
/// second per lookup instead of ten, and the process does not warn about it.
/// LibTorch looks up the name of each address to which its store connects, for
/// messages.
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
