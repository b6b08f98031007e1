#include <ddp/comm_hooks/post_local_sgd_hook.h>

#include <ddp/comm_hooks/step_count.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/reducer/buckets/futures.h>

#include <algorithm>

namespace ddp {
namespace {

/// The ranks of this rank's host.
ProcessGroup host_of(const ProcessGroup& group) {
  const auto& hosts = detail::ProcessGroupImpl::of(group).hosts;
  if (group.size() == 1) {
    return group;
  }
  const auto first = std::find(hosts.begin(), hosts.end(), hosts[group.rank()]);
  return group.split(first - hosts.begin());
}

} // namespace

struct DDP_LOCAL PostLocalSGDHook::Impl {
  PostLocalSGDOptions options;
  detail::StepCount steps;
};

PostLocalSGDHook::PostLocalSGDHook(const PostLocalSGDOptions& options)
    : impl_(std::make_unique<Impl>(Impl{options, {}})) {
  DDP_CHECK_VALUE(
      options.start_iteration() >= 0,
      "PostLocalSGDOptions: start_iteration is {}, expected 0 or more",
      options.start_iteration());
}

PostLocalSGDHook::~PostLocalSGDHook() = default;

/// Ranks may be in subgroups of different sizes.
std::string PostLocalSGDHook::describe() const {
  const auto& options = impl_->options;
  return detail::format(
      "{}(start_iteration {}, subgroup {}, post_local_gradient_allreduce {})",
      CommHook::describe(),
      options.start_iteration(),
      options.subgroup() ? "set" : "of the host",
      options.post_local_gradient_allreduce());
}

c10::intrusive_ptr<c10::ivalue::Future> PostLocalSGDHook::run(
    const GradBucket& bucket,
    const ProcessGroup& group) {
  auto& options = impl_->options;
  if (options.post_local_gradient_allreduce() && !options.subgroup()) {
    options.subgroup(host_of(group)); // now: ranks may drift apart later
  }
  if (impl_->steps.before(bucket) < options.start_iteration()) {
    return detail::all_reduce_mean(bucket.buffer, group);
  }
  return options.post_local_gradient_allreduce()
      ? detail::all_reduce_mean(bucket.buffer, *options.subgroup())
      : detail::completed_future(bucket.buffer);
}

c10::IValue PostLocalSGDHook::state_dict() const {
  return impl_->steps.begun();
}

void PostLocalSGDHook::load_state_dict(const c10::IValue& state) {
  DDP_CHECK_VALUE(
      state.isInt(),
      "PostLocalSGDHook: the state was not saved by a PostLocalSGDHook");
  impl_->steps.set(state.toInt());
}

} // namespace ddp
