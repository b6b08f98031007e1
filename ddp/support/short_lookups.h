#pragma once

namespace ddp::detail {

/// While it lives, a name server that does not answer keeps this thread for one
/// second per lookup, and not for ten: LibTorch looks up the name of each
/// address that its store connects to, to show it in messages. From the first
/// one on the process does not show the warnings of LibTorch's log (not those
/// of TORCH_WARN), unless TORCH_CPP_LOG_LEVEL says which it shows.
class ShortLookups {
 public:
  ShortLookups();
  ShortLookups(const ShortLookups&) = delete;
  ShortLookups& operator=(const ShortLookups&) = delete;
  ~ShortLookups();

 private:
  int seconds_ = 0;
  int attempts_ = 0;
};

} // namespace ddp::detail
