#pragma once

#include <ddp/backends/common/forwarding_backend.h>
#include <ddp/debug/call_order.h>
#include <ddp/failure/flight_recorder.h>

#include <atomic>
#include <memory>
#include <string>

namespace ddp::debug {

/// Another backend, whose calls are recorded and, if wanted, compared over the
/// ranks before they run. So it sees those of the Reducer, of communication
/// hooks and of the program's own use of c10d alike. To those who ask it is the
/// other one.
class Backend final : public backends::ForwardingBackend {
 public:
  /// `order` is null where calls are not compared.
  Backend(
      c10::intrusive_ptr<c10d::Backend> inner,
      flight_recorder::Caller caller,
      std::unique_ptr<CallOrder> order);

  const c10d::Backend& inner() const {
    return *inner_;
  }

  const std::string getBackendName() const override {
    return inner_->getBackendName();
  }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return inner_->getBackendOptions();
  }
  bool supportsSplitting() const override {
    return inner_->supportsSplitting();
  }
  bool supportsCoalescing() const override {
    return inner_->supportsCoalescing();
  }
  void startCoalescing() override {
    inner_->startCoalescing();
  }
  WorkPtr endCoalescing() override {
    return inner_->endCoalescing();
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    inner_->setTimeout(timeout);
    if (order_) {
      order_->set_timeout(timeout);
    }
  }
  void setSequenceNumberForGroup() override {
    inner_->setSequenceNumberForGroup();
  }
  uint64_t getSequenceNumberForGroup() override {
    return inner_->getSequenceNumberForGroup();
  }
  void setGroupUid(const std::string& uid) override {
    c10d::Backend::setGroupUid(uid);
    inner_->setGroupUid(uid);
  }
  void registerOnCompletionHook(
      std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override {
    inner_->registerOnCompletionHook(std::move(hook));
  }
  void waitForPendingWorks() override {
    inner_->waitForPendingWorks();
  }
  void enableCollectivesTiming() override {
    inner_->enableCollectivesTiming();
  }
  void eagerConnectSingleDevice(at::Device device) override {
    inner_->eagerConnectSingleDevice(device);
  }
  c10d::ErrorType getError() override {
    return inner_->getError();
  }
  std::shared_ptr<c10::Allocator> getMemAllocator() override {
    return inner_->getMemAllocator();
  }
  bool supportsTensorAlloc(c10::DeviceIndex index) override {
    return inner_->supportsTensorAlloc(index);
  }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return inner_->allocateTensor(size, options);
  }
  void abort() override {
    inner_->abort();
  }
  void shutdown() override {
    inner_->shutdown();
  }

 private:
  WorkPtr forward(const Call& call, Launch launch) override;
  WorkPtr forward_message(const Call& call, Launch launch) override;
  /// Runs a call that has its number in the record.
  WorkPtr recorded(uint64_t number, Launch launch);
  void follow(uint64_t number, c10d::Work& work) const;

  const c10::intrusive_ptr<c10d::Backend> inner_;
  const flight_recorder::Caller caller_;
  const std::unique_ptr<CallOrder> order_;
  /// Collectives so far.
  std::atomic<int64_t> sequence_{0};
};

} // namespace ddp::debug
