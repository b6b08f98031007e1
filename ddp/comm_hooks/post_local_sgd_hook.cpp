#include <ddp/comm_hooks/post_local_sgd_hook.h>

#include <ddp/comm_hooks/step_count.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/reducer/buckets/futures.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

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
  using Origin = c10::weak_intrusive_ptr<c10d::ProcessGroup>;

  const ProcessGroup& subgroup_of(const ProcessGroup& group) {
    if (options.subgroup()) {
      return *options.subgroup();
    }
    if (origin.lock() != group.c10d()) { // another Reducer
      host = host_of(group);
      origin = Origin(group.c10d());
    }
    return host;
  }

  PostLocalSGDOptions options;
  detail::StepCount steps = {};
  ProcessGroup host = {}; ///< the part of `origin` on this rank's host
  /// Not owned: it ends with its Reducer.
  Origin origin{c10::intrusive_ptr<c10d::ProcessGroup>()};
};

PostLocalSGDHook::PostLocalSGDHook(const PostLocalSGDOptions& options)
    : impl_(std::make_unique<Impl>(Impl{options})) {
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

ProcessGroup PostLocalSGDHook::connect(const ProcessGroup& group) {
  if (impl_->options.post_local_gradient_allreduce()) {
    impl_->subgroup_of(group);
  }
  return group;
}

c10::intrusive_ptr<c10::ivalue::Future> PostLocalSGDHook::run(
    const GradBucket& bucket,
    const ProcessGroup& group) {
  const auto& options = impl_->options;
  if (impl_->steps.before(bucket) < options.start_iteration()) {
    return detail::all_reduce_mean(bucket.buffer, group);
  }
  return options.post_local_gradient_allreduce()
      ? detail::all_reduce_mean(bucket.buffer, impl_->subgroup_of(group))
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
