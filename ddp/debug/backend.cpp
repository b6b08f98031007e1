#include <ddp/debug/backend.h>

#include <utility>

// What is asked of the other backend as it is.

namespace ddp::debug {

Backend::Backend(
    c10::intrusive_ptr<c10d::Backend> inner,
    flight_recorder::Caller caller,
    std::unique_ptr<CallOrder> order)
    : c10d::Backend(inner->getRank(), inner->getSize()),
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

} // namespace ddp::debug
