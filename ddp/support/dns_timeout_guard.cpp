#include <ddp/support/dns_timeout_guard.h>

#include <c10/util/Logging.h>

#include <resolv.h>

#include <algorithm>
#include <mutex>

namespace ddp::detail {
namespace {

constexpr int kError = 2; // as glog numbers severities

/// Of c10's log, while anybody looks up names.
struct Nesting {
  std::mutex mutex;
  int users = 0;
  int before = 0;
};

Nesting& nesting() {
  static Nesting instance;
  return instance;
}

void silence_warnings() {
  const std::lock_guard<std::mutex> lock(nesting().mutex);
  if (nesting().users++ == 0) {
    nesting().before = FLAGS_caffe2_log_level;
    FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, kError);
  }
}

void let_warnings_be() {
  const std::lock_guard<std::mutex> lock(nesting().mutex);
  if (--nesting().users == 0) {
    FLAGS_caffe2_log_level = nesting().before;
  }
}

} // namespace

DnsTimeoutGuard::DnsTimeoutGuard() {
  if ((_res.options & RES_INIT) == 0) {
    res_init();
  }
  seconds_ = _res.retrans;
  attempts_ = _res.retry;
  _res.retrans = 1;
  _res.retry = 1;
  silence_warnings();
}

DnsTimeoutGuard::~DnsTimeoutGuard() {
  let_warnings_be();
  _res.retrans = seconds_;
  _res.retry = attempts_;
}

} // namespace ddp::detail
