#include <ddp/debug/backend_wrapper.h>

#include <ddp/backends/common/forwarding_backend.h>
#include <ddp/debug/collective_fingerprint.h>
#include <ddp/failure/debug_level.h>
#include <ddp/failure/flight_recorder.h>
#include <ddp/internal/check.h>
#include <ddp/support/detached_task.h>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <set>

namespace ddp::debug {
/// The order of a group's collectives over all its backends.
struct CallOrder {
  /// The number of collectives so far.
  std::atomic<int64_t> sequence{0};
  /// Null if calls are not compared.
  std::unique_ptr<CollectiveFingerprint> fingerprint;
};

namespace {

/// Records the calls of another backend and, if wanted, compares them over the
/// ranks before they run: calls of the Reducer, of communication hooks, and of
/// a program that uses c10d. Queries return the properties of the other
/// backend.
class BackendWrapper final : public backends::ForwardingBackend {
 public:
  BackendWrapper(
      c10::intrusive_ptr<c10d::Backend> inner,
      flight_recorder::Caller caller,
      std::shared_ptr<CallOrder> order)
      : ForwardingBackend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        caller_(std::move(caller)),
        order_(std::move(order)) {
    bound_device_id_ = inner_->getBoundDeviceId();
  }

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
    if (order_->fingerprint) {
      order_->fingerprint->set_timeout(timeout);
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
  using State = flight_recorder::State;

  /// Runs a call that has this number in the record.
  WorkPtr recorded(uint64_t number, Launch launch) {
    try {
      auto work = launch(*inner_);
      if (work) { // else it is part of a coalesced call
        follow(number, *work);
      }
      return work;
    } catch (...) {
      flight_recorder::is_now(number, State::kFailed);
      throw;
    }
  }

  WorkPtr forward(const Call& call, Launch launch) override {
    const auto sequence = ++order_->sequence;
    const auto number = flight_recorder::began(caller_, sequence, call);
    return recorded(number, [&](c10d::Backend& inner) {
      if (order_->fingerprint) {
        flight_recorder::is_now(number, State::kChecking);
        order_->fingerprint->check(sequence, call, number);
        flight_recorder::is_now(number, State::kStarted);
      }
      return launch(inner);
    });
  }

  WorkPtr forward_message(const Call& call, Launch launch) override {
    return recorded(flight_recorder::began(caller_, 0, call), launch);
  }

  /// NCCL's futures are complete once the work is queued. The result futures
  /// are complete once the GPU has done the work; their value 0 means success.
  void follow(uint64_t number, c10d::Work& work) const {
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
    } catch (const std::exception&) { // gloo's messages have no futures
    }
  }

  const c10::intrusive_ptr<c10d::Backend> inner_;
  const flight_recorder::Caller caller_;
  const std::shared_ptr<CallOrder> order_;
};

std::string name_of(const detail::ProcessGroupImpl& group) {
  return "ddp" + group.scope;
}

std::unique_ptr<CollectiveFingerprint> fingerprint_of(
    const detail::ProcessGroupImpl& group,
    const flight_recorder::Caller& caller) {
  if (group.size == 1) {
    return nullptr;
  }
  // A wait blocks its connection, so this object has a separate one.
  auto store = c10::make_intrusive<c10d::PrefixStore>(
      "debug", detail::answered_within(group.timeout, [store = group.store] {
        return store->clone();
      }));
  return std::make_unique<CollectiveFingerprint>(
      std::move(store),
      group.failure_store,
      group.scope,
      caller,
      group.timeout,
      group.wait_notice);
}

} // namespace

c10::intrusive_ptr<c10d::Backend> wrap_backend(
    detail::ProcessGroupImpl& group,
    c10::intrusive_ptr<c10d::Backend> backend) {
  const auto wanted = debug_level();
  if (wanted == DebugLevel::kOff) {
    return backend;
  }
  flight_recorder::enable(group.rank, group.size);
  flight_recorder::Caller caller{
      name_of(group), backend->getBackendName(), group.rank, group.size};
  if (!group.calls) {
    group.calls = std::make_shared<CallOrder>();
    if (wanted == DebugLevel::kDetail) {
      group.calls->fingerprint = fingerprint_of(group, caller);
    }
  }
  return c10::make_intrusive<BackendWrapper>(
      std::move(backend), std::move(caller), group.calls);
}

const c10d::Backend& unwrap_backend(const c10d::Backend& backend) {
  const auto* wrapper = dynamic_cast<const BackendWrapper*>(&backend);
  return wrapper ? wrapper->inner() : backend;
}

void log_group(const detail::ProcessGroupImpl& group) {
  if (group.rank == 0 && debug_level() != DebugLevel::kOff) {
    const std::set<std::string> hosts(group.hosts.begin(), group.hosts.end());
    TORCH_WARN(detail::format(
        "ddp: group {}: size {}, hosts {}, backend {}, device of rank 0 {}, "
        "timeout {} s",
        name_of(group),
        group.size,
        hosts.size(),
        group.backend,
        group.device,
        group.timeout.count() / 1000.0));
  }
}

void log_reducer(
    const ProcessGroup& group,
    const std::string& name,
    size_t parameters,
    size_t buckets) {
  if (group.rank() == 0 && debug_level() != DebugLevel::kOff) {
    TORCH_WARN(detail::format(
        "ddp: Reducer ddp{}: trained parameters {}, buckets {}, group {}, "
        "backend {}",
        name,
        parameters,
        buckets,
        name_of(detail::ProcessGroupImpl::of(group)),
        group.backend()));
  }
}

} // namespace ddp::debug
