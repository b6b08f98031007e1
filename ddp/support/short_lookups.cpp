#include <ddp/support/short_lookups.h>

#include <c10/util/Logging.h>

#include <resolv.h>

#include <algorithm>
#include <cstdlib>

namespace ddp::detail {
namespace {

constexpr int kError = 2; // as glog numbers severities

/// Of what LibTorch's store warns, a connection that ends or takes long, ddp
/// tells itself, by rank.
void silence_warnings() {
  if (!std::getenv("TORCH_CPP_LOG_LEVEL")) {
    FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, kError);
  }
}

} // namespace

ShortLookups::ShortLookups() {
  if ((_res.options & RES_INIT) == 0) {
    res_init();
  }
  seconds_ = _res.retrans;
  attempts_ = _res.retry;
  _res.retrans = 1;
  _res.retry = 1;
  silence_warnings();
}

ShortLookups::~ShortLookups() {
  _res.retrans = seconds_;
  _res.retry = attempts_;
}

} // namespace ddp::detail
