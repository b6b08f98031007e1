#include <ddp/debug/backend.h>

#include <ATen/core/ivalue.h>

#include <utility>

namespace ddp::debug {

using flight_recorder::State;

Backend::Backend(
    c10::intrusive_ptr<c10d::Backend> inner,
    flight_recorder::Caller caller,
    std::unique_ptr<CallOrder> order)
    : ForwardingBackend(inner->getRank(), inner->getSize()),
      inner_(std::move(inner)),
      caller_(std::move(caller)),
      order_(std::move(order)) {
  bound_device_id_ = inner_->getBoundDeviceId();
}

const std::string Backend::getBackendName() const {
  return inner_->getBackendName();
}

c10::intrusive_ptr<Backend::Options> Backend::getBackendOptions() {
  return inner_->getBackendOptions();
}

bool Backend::supportsSplitting() const {
  return inner_->supportsSplitting();
}

bool Backend::supportsCoalescing() const {
  return inner_->supportsCoalescing();
}

void Backend::startCoalescing() {
  inner_->startCoalescing();
}

Backend::WorkPtr Backend::endCoalescing() {
  return inner_->endCoalescing();
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  inner_->setTimeout(timeout);
  if (order_) {
    order_->set_timeout(timeout);
  }
}

void Backend::setSequenceNumberForGroup() {
  inner_->setSequenceNumberForGroup();
}

uint64_t Backend::getSequenceNumberForGroup() {
  return inner_->getSequenceNumberForGroup();
}

void Backend::setGroupUid(const std::string& uid) {
  c10d::Backend::setGroupUid(uid);
  inner_->setGroupUid(uid);
}

void Backend::registerOnCompletionHook(
    std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  inner_->registerOnCompletionHook(std::move(hook));
}

void Backend::waitForPendingWorks() {
  inner_->waitForPendingWorks();
}

void Backend::enableCollectivesTiming() {
  inner_->enableCollectivesTiming();
}

void Backend::eagerConnectSingleDevice(at::Device device) {
  inner_->eagerConnectSingleDevice(device);
}

c10d::ErrorType Backend::getError() {
  return inner_->getError();
}

std::shared_ptr<c10::Allocator> Backend::getMemAllocator() {
  return inner_->getMemAllocator();
}

bool Backend::supportsTensorAlloc(c10::DeviceIndex index) {
  return inner_->supportsTensorAlloc(index);
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  return inner_->allocateTensor(size, options);
}

void Backend::abort() {
  inner_->abort();
}

void Backend::shutdown() {
  inner_->shutdown();
}

Backend::WorkPtr Backend::recorded(uint64_t number, Launch launch) {
  try {
    auto work = launch(*inner_);
    if (work) { // else it belongs to a coalesced one
      follow(number, *work);
    }
    return work;
  } catch (...) {
    flight_recorder::is_now(number, State::kFailed);
    throw;
  }
}

Backend::WorkPtr Backend::forward(const Call& call, Launch launch) {
  const auto sequence = ++sequence_;
  const auto number = flight_recorder::began(caller_, sequence, call);
  return recorded(number, [&](c10d::Backend& inner) {
    if (order_) {
      flight_recorder::is_now(number, State::kChecking);
      order_->check(sequence, call, number);
      flight_recorder::is_now(number, State::kStarted);
    }
    return launch(inner);
  });
}

Backend::WorkPtr Backend::forward_message(const Call& call, Launch launch) {
  return recorded(flight_recorder::began(caller_, 0, call), launch);
}

/// NCCL's futures are complete once the GPU has been told; it has others that
/// are so once the GPU has done it, with the result as a number, 0 for success.
void Backend::follow(uint64_t number, c10d::Work& work) const {
  const bool nccl = caller_.backend == "nccl";
  try {
    const auto future = nccl ? work.getFutureResult() : work.getFuture();
    future->addCallback(
        [number, nccl](c10::ivalue::Future& result) {
          const bool failed =
              result.hasError() || (nccl && result.constValue().toInt() != 0);
          flight_recorder::is_now(
              number, failed ? State::kFailed : State::kCompleted);
        },
        /*uses_future=*/false);
  } catch (const std::exception&) { // gloo's messages have none
  }
}

} // namespace ddp::debug
