#include <ddp/process_group.h>

#include <ddp/backends/common/reduction.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/internal/text_tensor.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/support/plain_memory.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace ddp {
namespace {

using detail::Collective;
using detail::guarded;
using detail::to_bytes;
using detail::to_string;
using detail::heartbeat::Activity;

c10d::ReduceOp to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    default: // a mean is a sum, divided afterwards
      return c10d::ReduceOp::SUM;
  }
}

/// Whether only some backends broadcast this dtype.
bool is_rare(at::ScalarType dtype) {
  return dtype == at::kShort || at::isBarebonesUnsignedType(dtype) ||
      at::isFloat8Type(dtype);
}

Collective start_broadcast(
    detail::ProcessGroupImpl& group,
    at::Tensor& tensor,
    int64_t root) {
  std::vector<at::Tensor> tensors{
      is_rare(tensor.scalar_type()) ? detail::as_bytes(tensor) : tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return detail::start(
      group, tensor, [&] { return group.group->broadcast(tensors, options); });
}

Collective start_barrier(detail::ProcessGroupImpl& group) {
  c10d::BarrierOptions options;
  options.device = at::kCPU; // does not wait for a GPU
  return detail::start(
      group, at::zeros({1}), [&] { return group.group->barrier(options); });
}

Activity activity_on(
    const char* operation,
    const at::Tensor& tensor,
    int64_t root = -1) {
  return {operation, tensor.numel(), c10::toString(tensor.scalar_type()), root};
}

void check_root(const detail::ProcessGroupImpl& group, int64_t root) {
  DDP_CHECK_VALUE(
      root >= 0 && root < group.size,
      "broadcast: root {} is not a rank of a group of {}",
      root,
      group.size);
}

/// `tensor`, or a copy whose memory a backend can read: contiguous, without a
/// pending negation or conjugation.
at::Tensor readable(const at::Tensor& tensor) {
  return detail::with_plain_memory(tensor.contiguous());
}

/// Throws unless a backend can use the tensor's memory after this call returns.
void check_readable(const char* operation, const at::Tensor& tensor) {
  DDP_CHECK_VALUE(
      tensor.is_contiguous() && detail::has_plain_memory(tensor),
      "{}: the tensor {}: pass "
      "tensor.contiguous().resolve_conj().resolve_neg()",
      operation,
      tensor.is_contiguous()
          ? "has the conjugate or negative bit set, or is not dense"
          : "is not contiguous");
}

/// Runs `operation` on `tensor`, or on a copy that is written back.
template <typename Operation>
void in_place(const at::Tensor& tensor, Operation&& operation) {
  at::NoGradGuard no_grad;
  auto memory = readable(tensor);
  operation(memory);
  if (!memory.is_same(tensor)) {
    tensor.copy_(memory);
  }
}

/// A hash of dtype and trailing sizes, which must be equal on all ranks.
int64_t gather_signature(const at::Tensor& tensor) {
  uint64_t hash = 1469598103934665603ULL;
  const auto mix = [&](int64_t value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 1099511628211ULL;
  };
  mix(static_cast<int64_t>(tensor.scalar_type()));
  for (const auto size : tensor.sizes().slice(1)) {
    mix(size);
  }
  return static_cast<int64_t>(hash);
}

/// All-gather of tensors with at least one dimension, by padding to the
/// longest.
std::vector<at::Tensor> gather_uneven(
    detail::ProcessGroupImpl& group,
    const at::Tensor& tensor) {
  const auto header =
      at::tensor({tensor.size(0), gather_signature(tensor)}, at::kLong);
  const auto headers = detail::gather_equal(group, header);
  int64_t longest = 0;
  for (int64_t r = 0; r < group.size; ++r) {
    DDP_CHECK_VALUE(
        headers[r][1].item<int64_t>() == header[1].item<int64_t>(),
        "all_gather: dtype or trailing sizes on rank {} differ from this "
        "rank's {} {}",
        r,
        tensor.scalar_type(),
        tensor.sizes());
    longest = std::max(longest, headers[r][0].item<int64_t>());
  }
  auto sizes = tensor.sizes().vec();
  sizes[0] = longest;
  auto padded = tensor.new_zeros(sizes);
  padded.narrow(0, 0, tensor.size(0)).copy_(tensor);
  auto gathered = detail::gather_equal(group, detail::as_bytes(padded));
  for (int64_t r = 0; r < group.size; ++r) {
    gathered[r] =
        gathered[r].view(tensor.scalar_type()).squeeze(-1).variable_data();
    const auto length = headers[r][0].item<int64_t>();
    if (length < longest) {
      gathered[r] = gathered[r].narrow(0, 0, length).clone();
    }
  }
  return gathered;
}

} // namespace

detail::Collective detail::start_all_reduce(
    detail::ProcessGroupImpl& group,
    at::Tensor& tensor,
    ReduceOp op) {
  group.set_averaged();
  std::vector<at::Tensor> tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = to_c10d(op);
  return detail::start(
      group, tensor, [&] { return group.group->allreduce(tensors, options); });
}

std::vector<at::Tensor> detail::gather_equal(
    detail::ProcessGroupImpl& group,
    const at::Tensor& tensor) {
  group.set_used();
  std::vector<at::Tensor> inputs{readable(tensor)};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int64_t r = 0; r < group.size; ++r) {
    outputs[0].push_back(at::empty_like(inputs[0]));
  }
  if (tensor.numel() > 0) {
    detail::wait(group, detail::start(group, tensor, [&] {
                   return group.group->allgather(outputs, inputs);
                 }));
  }
  return outputs[0];
}

void detail::wait_for_all_ranks(
    detail::ProcessGroupImpl& group,
    const char* operation) {
  const Activity activity(operation);
  guarded(group, operation, [&] {
    if (group.group) {
      wait(group, start_barrier(group));
    }
  });
}

struct DDP_LOCAL Work::State {
  State(
      std::shared_ptr<detail::ProcessGroupImpl> its_group,
      const char* its_operation,
      const at::Tensor& tensor,
      int64_t its_root,
      Collective started)
      : group(std::move(its_group)),
        operation(its_operation),
        count(tensor.numel()),
        dtype(c10::toString(tensor.scalar_type())),
        root(its_root),
        collective(std::move(started)) {}

  ~State() {
    // A GPU's stream completes without a wait on the host.
    if (collective.on_host && !collective.work->isCompleted()) {
      group->abandoned = true;
    }
  }

  std::shared_ptr<detail::ProcessGroupImpl> group;
  const char* operation;
  int64_t count;
  const char* dtype;
  int64_t root;
  Collective collective;
};

Work::Work() = default;
Work::Work(std::unique_ptr<State> state) : state_(std::move(state)) {}
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(Work&&) noexcept = default;
Work::~Work() = default;

void Work::wait() {
  if (state_) {
    const Activity activity(
        state_->operation, state_->count, state_->dtype, state_->root);
    guarded(*state_->group, state_->operation, [&] {
      detail::wait(*state_->group, state_->collective);
    });
    state_.reset();
  }
}

ProcessGroup::ProcessGroup()
    : impl_(std::make_shared<detail::ProcessGroupImpl>()) {
  impl_->by_default = true;
}
ProcessGroup::ProcessGroup(std::shared_ptr<detail::ProcessGroupImpl> impl)
    : impl_(std::move(impl)) {}

int64_t ProcessGroup::rank() const {
  return impl_->rank;
}
int64_t ProcessGroup::size() const {
  return impl_->size;
}
int64_t ProcessGroup::local_rank() const {
  return impl_->local_rank;
}
int64_t ProcessGroup::local_size() const {
  return impl_->local_size;
}
c10::Device ProcessGroup::device() const {
  return impl_->device;
}
const std::string& ProcessGroup::backend() const {
  return impl_->backend;
}
std::chrono::milliseconds ProcessGroup::timeout() const {
  return impl_->timeout;
}
c10::intrusive_ptr<c10d::Store> ProcessGroup::store() const {
  return impl_->store;
}
c10::intrusive_ptr<c10d::ProcessGroup> ProcessGroup::c10d() const {
  impl_->set_averaged(); // the caller may use the result
  return impl_->group;
}

void ProcessGroup::all_reduce(at::Tensor tensor, ReduceOp op) const {
  DDP_CHECK_VALUE(
      op != ReduceOp::kMean || tensor.is_floating_point() ||
          tensor.is_complex(),
      "all_reduce: the mean of {} tensors is not defined; reduce with kSum",
      tensor.scalar_type());
  const auto activity = activity_on("all_reduce", tensor);
  guarded(*impl_, "all_reduce", [&] {
    if (!impl_->group) {
      return;
    }
    in_place(tensor, [&](at::Tensor& contiguous) {
      detail::wait(*impl_, detail::start_all_reduce(*impl_, contiguous, op));
      if (op == ReduceOp::kMean) {
        backends::divide_sum(contiguous, impl_->size);
      }
    });
  });
}

Work ProcessGroup::all_reduce_async(at::Tensor tensor, ReduceOp op) const {
  DDP_CHECK_VALUE(
      op != ReduceOp::kMean,
      "all_reduce_async: kMean needs a division after the sum; use kSum and "
      "divide after wait()");
  check_readable("all_reduce_async", tensor);
  const auto activity = activity_on("all_reduce_async", tensor);
  return guarded(*impl_, "all_reduce_async", [&] {
    return impl_->group ? Work(std::make_unique<Work::State>(
                              impl_,
                              "all_reduce_async",
                              tensor,
                              -1,
                              detail::start_all_reduce(*impl_, tensor, op)))
                        : Work();
  });
}

std::vector<at::Tensor> ProcessGroup::all_gather(
    const at::Tensor& tensor) const {
  const Activity activity("all_gather");
  return guarded(*impl_, "all_gather", [&]() -> std::vector<at::Tensor> {
    at::NoGradGuard no_grad;
    if (!impl_->group) {
      return {tensor.detach().clone()};
    }
    if (tensor.dim() > 0) {
      return gather_uneven(*impl_, tensor);
    }
    auto gathered = gather_uneven(*impl_, tensor.reshape({1}));
    for (auto& scalar : gathered) {
      scalar = scalar.reshape({}).variable_data();
    }
    return gathered;
  });
}

std::vector<std::string> ProcessGroup::all_gather(
    const std::string& text) const {
  std::vector<std::string> texts;
  for (const auto& bytes : all_gather(to_bytes(text))) {
    texts.push_back(to_string(bytes));
  }
  return texts;
}

void ProcessGroup::broadcast(at::Tensor tensor, int64_t root) const {
  check_root(*impl_, root);
  const auto activity = activity_on("broadcast", tensor, root);
  guarded(*impl_, "broadcast", [&] {
    if (impl_->group && tensor.numel() > 0) {
      in_place(tensor, [&](at::Tensor& contiguous) {
        detail::wait(*impl_, start_broadcast(*impl_, contiguous, root));
      });
    }
  });
}

Work ProcessGroup::broadcast_async(at::Tensor tensor, int64_t root) const {
  check_root(*impl_, root);
  check_readable("broadcast_async", tensor);
  const auto activity = activity_on("broadcast_async", tensor, root);
  return guarded(*impl_, "broadcast_async", [&] {
    return impl_->group ? Work(std::make_unique<Work::State>(
                              impl_,
                              "broadcast_async",
                              tensor,
                              root,
                              start_broadcast(*impl_, tensor, root)))
                        : Work();
  });
}

std::string ProcessGroup::broadcast(const std::string& text, int64_t root)
    const {
  auto length = at::tensor({static_cast<int64_t>(text.size())}, at::kLong);
  broadcast(length, root);
  auto bytes = rank() == root ? to_bytes(text)
                              : at::empty({length.item<int64_t>()}, at::kByte);
  broadcast(bytes, root);
  return to_string(bytes);
}

void ProcessGroup::barrier() const {
  detail::wait_for_all_ranks(*impl_, "barrier");
}

void ProcessGroup::shutdown() {
  if (impl_->shut_down) {
    return;
  }
  const Activity activity("shutdown");
  barrier();
  impl_->shut_down = true;
  detail::disconnect(*impl_);
  impl_->store.reset();
}

} // namespace ddp
