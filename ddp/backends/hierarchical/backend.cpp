#include <ddp/backends/hierarchical/backend.h>

#include <ddp/internal/check.h>
#include <ddp/support/detached_task.h>

#include <ATen/core/LegacyTypeDispatch.h>

namespace ddp::backends::hierarchical {

Backend::Backend(
    const std::vector<std::string>& hosts,
    int rank,
    const SubBackends& sub_backends)
    : ForwardingBackend(rank, static_cast<int>(hosts.size())),
      steps_(std::make_shared<Steps>(hosts, rank, sub_backends)),
      arguments_("hierarchical", rank_, size_),
      queue_(
          std::make_shared<Queue>([steps = steps_] { steps->break_off(); })) {
  init();
}

Backend::~Backend() {
  queue_->stop();
  if (!queue_->first_error().empty()) {
    // An aborted operation may still run in gloo, whose destructor waits for
    // the operation. The queue also holds the steps.
    try {
      detail::run_detached(
          [queue = std::move(queue_), steps = std::move(steps_)]() mutable {
            queue.reset();
            steps.reset();
          });
    } catch (const std::exception&) { // no thread: destroys them here
    }
  }
}

const std::string Backend::getBackendName() const {
  return "hierarchical";
}

c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions() {
  return c10::make_intrusive<Options>(
      "hierarchical", steps_->flat.backend()->getBackendOptions()->timeout);
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  steps_->for_parts(&c10d::Backend::setTimeout, timeout);
}

void Backend::setSequenceNumberForGroup() {} // 0 on every rank

uint64_t Backend::getSequenceNumberForGroup() {
  return queue_->pushed();
}

bool Backend::supportsTensorAlloc(c10::DeviceIndex device) {
  return steps_->intra_node.backend() &&
      steps_->intra_node.backend()->supportsTensorAlloc(device);
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  DDP_CHECK(
      steps_->intra_node.backend(),
      "hierarchical: this rank is alone on its host");
  return steps_->intra_node.backend()->allocateTensor(size, std::move(options));
}

void Backend::abort() {
  queue_->break_off("the group was aborted");
  steps_->break_off();
}

void Backend::shutdown() {
  queue_->break_off("the group was shut down");
  steps_->for_parts(&c10d::Backend::shutdown);
}

void Backend::check_usable(const char* name) const {
  arguments_.check_usable(name, queue_->first_error());
}

Backend::WorkPtr Backend::forward(const debug::Call& call, Launch launch) {
  sent_flat_ = true;
  return forward_message(call, launch);
}

Backend::WorkPtr Backend::forward_message(
    const debug::Call& call,
    Launch launch) {
  check_usable(call.operation);
  return launch(*steps_->flat.backend());
}

at::Tensor Backend::elements(const char* name, const at::Tensor& tensor) const {
  arguments_.check_on_cpu(name, tensor);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return tensor.as_strided({tensor.numel()}, {1});
}

Backend::WorkPtr Backend::push(
    c10d::OpType type,
    const char* name,
    const Tensors& outputs,
    std::function<void()> body) {
  check_usable(name);
  auto operation = c10::make_intrusive<Operation>(
      BackendWork::Member{"hierarchical", rank_, size_},
      OperationInfo{type, name, {}, outputs, /*bytes=*/-1},
      std::move(body));
  queue_->push(operation);
  return operation;
}

c10::intrusive_ptr<c10d::Backend> create(
    const std::vector<std::string>& hosts,
    int rank,
    const SubBackends& sub_backends) {
  return c10::make_intrusive<Backend>(hosts, rank, sub_backends);
}

} // namespace ddp::backends::hierarchical
