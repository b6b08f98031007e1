#include <ddp/support/short_lookups.h>

#include <c10/util/Logging.h>

#include <resolv.h>

#include <algorithm>
#include <mutex>

namespace ddp::detail {
namespace {

constexpr int kError = 2; // as glog numbers severities

/// Of c10's log, while anybody looks up names.
struct Level {
  std::mutex mutex;
  int users = 0;
  int before = 0;
};

Level& level() {
  static Level instance;
  return instance;
}

void silence_warnings() {
  const std::lock_guard<std::mutex> lock(level().mutex);
  if (level().users++ == 0) {
    level().before = FLAGS_caffe2_log_level;
    FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, kError);
  }
}

void let_warnings_be() {
  const std::lock_guard<std::mutex> lock(level().mutex);
  if (--level().users == 0) {
    FLAGS_caffe2_log_level = level().before;
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
  let_warnings_be();
  _res.retrans = seconds_;
  _res.retry = attempts_;
}

} // namespace ddp::detail
