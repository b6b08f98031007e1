#pragma once

#include <netinet/in.h>
#include <resolv.h>

namespace ddp::detail {

/// While it lives, a name server that does not answer keeps this thread for one
/// second per lookup, and not for ten. LibTorch looks up the name of each
/// address that its store connects to, to show it in messages.
class ShortLookups {
 public:
  ShortLookups() {
    if ((_res.options & RES_INIT) == 0) {
      res_init();
    }
    seconds_ = _res.retrans;
    attempts_ = _res.retry;
    _res.retrans = 1;
    _res.retry = 1;
  }
  ShortLookups(const ShortLookups&) = delete;
  ShortLookups& operator=(const ShortLookups&) = delete;
  ~ShortLookups() {
    _res.retrans = seconds_;
    _res.retry = attempts_;
  }

 private:
  int seconds_ = 0;
  int attempts_ = 0;
};

} // namespace ddp::detail
