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
