#include <ddp/reducer.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/module_state.h>
#include <ddp/process_group/agreement/rank_report.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer/observers/timeline_file.h>
#include <ddp/reducer/reducer_impl.h>
#include <ddp/support/error_text.h>

// How it works (start at `on_gradient` in core/backward_reducer.cpp)
//
// In each backward pass, LibTorch's autograd accumulates each parameter's
// gradient and then calls a hook. The hook copies the gradient into its slice
// of a bucket, scaled by 1/size, makes the slice the gradient, and counts the
// gradient. (On a GPU, one kernel copies a whole bucket when the bucket is
// launched.) The hook that completes a bucket launches its reduction, which
// runs concurrently with backward. Buckets are launched in order, since the
// ranks' collectives must match. The first hook of a backward pass queues a
// callback at the end of the pass: there the Reducer marks the remaining
// parameters ready and waits for the buckets, whose slices then hold the means.
//
// In the first backward pass, neither the order of the gradients nor the number
// of their arrivals is known. By default, this pass therefore has one bucket
// for each dtype and device, launched at the end. From the second pass on,
// buckets have the requested sizes, in rank 0's order.

namespace ddp {
namespace {

/// The options that determine layout and values, and thus must be equal on all
/// ranks, one on each line.
std::string describe(const ReducerOptions& options) {
  std::vector<std::string> lines;
  const auto add = [&](const char* name, const auto& value) {
    lines.push_back(c10::str(name, " ", value));
  };
  const auto add_cap = [&](const char* name, std::optional<double> value) {
    add(name, value ? std::to_string(*value) : "default");
  };
  const auto add_names = [&](const char* name, const auto& names) {
    add(name, names.empty() ? "none" : c10::Join(" ", names));
  };
  const auto all_reduce = AllReduceHook();
  const auto* hook = options.comm_hook() ? &*options.comm_hook() : &all_reduce;
  add_cap("bucket_cap_mb", options.bucket_cap_mb());
  add_cap("first_bucket_cap_mb", options.first_bucket_cap_mb());
  add("bucket_layout", static_cast<int>(options.bucket_layout()));
  add("bucket_cap_mb_list", options.bucket_cap_mb_list());
  add("broadcast_buffers", options.broadcast_buffers());
  add("buffer_sync", static_cast<int>(options.buffer_sync()));
  add("find_unused_parameters", options.find_unused_parameters());
  add("gradient_as_bucket_view", options.gradient_as_bucket_view());
  add("static_graph", options.static_graph());
  add("skip_all_reduce_unused_params", options.skip_all_reduce_unused_params());
  add("check_divergence_every", options.check_divergence_every());
  add("check_finite", options.check_finite());
  add("comm_hook", hook->describe());
  add("timeline_steps",
      options.timeline_folder().empty() ? "none" : options.timeline_steps());
  add_names("parameters_to_ignore", options.parameters_to_ignore());
  add_names("sparse_parameters", options.sparse_parameters());
  return detail::join_lines(lines);
}

/// Broadcasts rank 0's parameters and buffers, after a check that everything
/// else is equal on all ranks.
void synchronize(
    const detail::TargetState& target,
    const ReducerOptions& options,
    const ProcessGroup& group) {
  if (!options.init_sync()) {
    return;
  }
  auto state = target.parameters;
  if (options.broadcast_buffers()) {
    state.append(target.buffers());
  }
  verify_same_model(state, describe(options), group);
  broadcast_tensors(state.tensors, group);
}

/// Returns the state. If it throws, the other ranks get the reason, since they
/// wait to compare their states.
detail::TargetState state_of(
    const detail::ReducerTarget& target,
    const ReducerOptions& options,
    const ProcessGroup& own_group) {
  try {
    return target.state(options);
  } catch (const std::exception& error) {
    if (options.init_sync()) {
      const auto text = detail::error_text(error);
      try {
        verify_same_model(
            {}, describe(options) + "cannot be reduced: " + text, own_group);
      } catch (const c10::ValueError&) { // only for the others; rethrows below
      }
    }
    throw;
  }
}

std::shared_ptr<ReducerImpl> make_impl(
    const detail::ReducerTarget& target,
    const ProcessGroup& group,
    const ReducerOptions& given,
    SyncDecision decision = SyncDecision::kInBackward) {
  const detail::heartbeat::Activity activity("Reducer");
  detail::check_not_forgotten(
      group, "Reducer", "its gradients are not averaged");
  const auto options = detail::with_timeline_variables(given);
  const auto own_group =
      options.share_communicator() ? group : group.duplicate();
  auto state = state_of(target, options, own_group);
  synchronize(state, options, own_group);
  try {
    auto impl = std::make_shared<ReducerImpl>(
        std::move(state), own_group, options, decision);
    impl->attach();
    return impl;
  } catch (const std::exception& error) {
    // Not to the program's group, which stays usable.
    if (&detail::ProcessGroupImpl::of(own_group) !=
        &detail::ProcessGroupImpl::of(group)) {
      detail::report_failure(own_group, detail::error_text(error));
    }
    throw;
  }
}

} // namespace

Reducer ReducerImpl::make_wrapped(
    const std::shared_ptr<torch::nn::Module>& module,
    const ProcessGroup& group,
    const ReducerOptions& options) {
  return Reducer(make_impl(module, group, options, SyncDecision::kInForward));
}

Reducer::Reducer(std::shared_ptr<ReducerImpl> impl) : impl_(std::move(impl)) {}

Reducer::Reducer(
    const detail::ReducerTarget& target,
    const ProcessGroup& group,
    const ReducerOptions& options)
    : Reducer(make_impl(target, group, options)) {}

Reducer::Reducer(Reducer&&) noexcept = default;

Reducer& Reducer::operator=(Reducer&& other) noexcept {
  if (this != &other) {
    end();
    impl_ = std::move(other.impl_);
  }
  return *this;
}

// A guard may outlive the Reducer and keep its state alive, but not its hooks.
Reducer::~Reducer() {
  end();
}

void Reducer::end() {
  if (impl_) {
    impl_->end();
  }
}

ReducerImpl& Reducer::impl() const {
  DDP_CHECK(impl_, "this Reducer was moved from");
  return *impl_;
}

Reducer::NoSyncGuard Reducer::no_sync() {
  impl().synchronization.begin_no_sync();
  return {impl_.get(), [impl = impl_](void*) {
            impl->synchronization.end_no_sync();
            // Also on a rank without a backward pass.
            impl->backward.unfrozen().record();
          }};
}

bool Reducer::synchronizes() const {
  return impl().synchronization.is_on();
}

void Reducer::finish_backward() {
  if (impl().lone_backward) {
    impl().lone_backward->finish_backward();
  } else {
    impl().backward.finish_backward();
  }
}

Join Reducer::join(const JoinOptions& options) {
  return Join(
      impl().group,
      options.enable() ? Join::Joinables{joinable()} : Join::Joinables(),
      options);
}

Joinable& Reducer::joinable() {
  return impl().joinable();
}

void Reducer::step_in_backward(torch::optim::Optimizer& optimizer) {
  impl().step_in_backward(optimizer);
}

std::vector<BucketIndices> Reducer::buckets() const {
  return impl().buckets.indices();
}

c10::IValue Reducer::state_dict() const {
  return impl().state_dict();
}

void Reducer::load_state_dict(const c10::IValue& state) {
  impl().load_state_dict(state);
}

c10::IValue Reducer::rank_state_dict() const {
  return impl().reduction.hook().rank_state_dict();
}

void Reducer::load_rank_state_dict(const c10::IValue& state) {
  impl().reduction.hook().load_rank_state_dict(state);
}

Timeline Reducer::timeline() const {
  const auto& self = impl();
  return self.options.record() ? self.observers.recorder.timeline()
                               : Timeline();
}

std::vector<at::Tensor> Reducer::parameters() const {
  return impl().buckets.tensors();
}

Statistics Reducer::statistics() const {
  return impl().statistics();
}

} // namespace ddp
