// Collectives that move data.

#include <ddp/backends/shm/backend.h>

#include <ddp/backends/shm/collective.h>
#include <ddp/backends/shm/exchange.h>
#include <ddp/backends/shm/memory/context.h>

namespace ddp::backends::shm {
namespace {

/// Ends when all ranks have begun the barrier.
class Barrier final : public Collective {
 public:
  explicit Barrier(Context& context) : context_(context) {}

  bool step() override {
    if (begun_) {
      context_.compare();
      return false;
    }
    context_.publish(c10d::OpType::BARRIER);
    return begun_ = true;
  }

 private:
  Context& context_;
  bool begun_ = false;
};

} // namespace

Backend::WorkPtr Backend::broadcast(
    Tensors& tensors,
    const c10d::BroadcastOptions& options) {
  const Call call{c10d::OpType::BROADCAST, "broadcast", options};
  const auto root = options.rootRank;
  arguments_.check_root(call.name, root);
  const auto& tensor = arguments_.only(call.name, tensors);
  arguments_.check_dense(call.name, tensor);
  const auto none = at::Tensor();
  Tensors from_ranks(size_);
  from_ranks[root] = rank_ == root ? none : tensor;
  return exchange(
      call,
      {{{{rank_ == root ? tensor : none},
         from_ranks,
         tensor.scalar_type(),
         root}},
       tensors});
}

Backend::WorkPtr Backend::exchange(const Call& call, Plan plan) {
  auto task = this->task(call);
  for (const auto& each : plan.exchanges) {
    for (const auto* tensors : {&each.to_ranks, &each.from_ranks}) {
      for (const auto& tensor : *tensors) {
        if (tensor.defined()) {
          add(task, tensor);
        }
      }
    }
  }
  const auto collectives = [&context = context(),
                            type = call.type](std::vector<Exchange> exchanges) {
    Collectives parts;
    for (auto& [to_ranks, from_ranks, dtype, root] : exchanges) {
      parts.push_back(std::make_unique<shm::Exchange>(
          context,
          ExchangeKind{type, dtype, static_cast<int>(root)},
          std::move(to_ranks),
          std::move(from_ranks)));
    }
    return parts;
  };
  std::function<Collectives()> next;
  if (plan.next) {
    next = [collectives, more = std::move(plan.next)] {
      return collectives(more());
    };
  }
  task.collective = std::make_unique<Chain>(
      collectives(std::move(plan.exchanges)), std::move(next));
  task.finish = std::move(plan.finish);
  task.outputs = std::move(plan.outputs);
  return engine_->submit(std::move(task));
}

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  auto task = this->task({c10d::OpType::BARRIER, "barrier", options});
  task.collective = std::make_unique<Barrier>(context());
  return engine_->submit(std::move(task));
}

void Backend::monitoredBarrier(
    const c10d::BarrierOptions& options,
    bool /*wait_all_ranks*/) {
  barrier(options)->wait();
}

} // namespace ddp::backends::shm
