#include <ddp/support/no_dns_guard.h>

#include <common/address_list.h>

#include <c10/util/Logging.h>

#include <resolv.h>

#include <algorithm>
#include <mutex>

namespace ddp::detail {
namespace {

constexpr int kError = 2; // the severity in glog

/// The state of c10's log while any thread looks up names.
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

bool is_address(const std::string& host) {
  int error = 0;
  look_up(host, 0, AI_NUMERICHOST, &error);
  return error == 0;
}

} // namespace

NoDnsGuard::NoDnsGuard(const std::string& host) : active_(is_address(host)) {
  if (!active_) {
    return;
  }
  if ((_res.options & RES_INIT) == 0) {
    res_init();
  }
  name_servers_ = _res.nscount;
  _res.nscount = 0;
  silence_warnings();
}

NoDnsGuard::~NoDnsGuard() {
  if (active_) {
    let_warnings_be();
    _res.nscount = name_servers_;
  }
}

} // namespace ddp::detail
