#include <ddp/comm_hooks/default_hooks.h>

#include <ddp/reducer/buckets/futures.h>

namespace ddp {

c10::intrusive_ptr<c10::ivalue::Future> NoopHook::run(
    const GradBucket& bucket,
    const ProcessGroup& /*group*/) {
  return detail::completed_future(bucket.buffer);
}

} // namespace ddp
