// Collectives that move data.

#include <ddp/backends/shm/backend.h>

#include <ddp/backends/shm/chain.h>
#include <ddp/backends/shm/collective.h>
#include <ddp/backends/shm/memory/team.h>

#include <utility>

namespace ddp::backends::shm {
namespace {

/// Ends when all ranks have begun it.
class Barrier final : public Collective {
 public:
  explicit Barrier(Team& team) : team_(team) {}

  bool step() override {
    if (begun_) {
      team_.compare();
      return false;
    }
    team_.announce(c10d::OpType::BARRIER);
    return begun_ = true;
  }

 private:
  Team& team_;
  bool begun_ = false;
};

} // namespace

std::unique_ptr<Collective> Backend::collective(
    const Task& task,
    Exchange exchange) const {
  return std::make_unique<shm::Exchange>(
      team(),
      ExchangeKind{task.type, exchange.dtype, static_cast<int>(exchange.root)},
      std::move(exchange.to_ranks),
      std::move(exchange.from_ranks));
}

Backend::WorkPtr Backend::broadcast(
    Tensors& tensors,
    const c10d::BroadcastOptions& options) {
  auto task = this->task({c10d::OpType::BROADCAST, "broadcast", options});
  const auto root = options.rootRank;
  arguments_.check_root(task.name, root);
  const auto& tensor = arguments_.only(task.name, tensors);
  output(task, tensor);
  const bool is_root = rank_ == root;
  Tensors from_ranks(size_);
  from_ranks[root] = is_root ? at::Tensor() : tensor;
  task.collective = collective(
      task,
      {{is_root ? tensor : at::Tensor()},
       from_ranks,
       tensor.scalar_type(),
       root});
  return launch(std::move(task));
}

Backend::WorkPtr Backend::exchange(
    const Call& call,
    std::vector<Exchange> exchanges,
    Tensors outputs) {
  auto task = this->task(call);
  std::vector<std::unique_ptr<Collective>> parts;
  for (auto& each : exchanges) {
    for (const auto* tensors : {&each.to_ranks, &each.from_ranks}) {
      for (const auto& tensor : *tensors) {
        if (tensor.defined()) {
          input(task, tensor);
        }
      }
    }
    parts.push_back(collective(task, std::move(each)));
  }
  task.outputs = std::move(outputs);
  task.collective = in_turn(std::move(parts));
  return launch(std::move(task));
}

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  auto task = this->task({c10d::OpType::BARRIER, "barrier", options});
  task.collective = std::make_unique<Barrier>(team());
  return launch(std::move(task));
}

void Backend::monitoredBarrier(
    const c10d::BarrierOptions& options,
    bool /*wait_all_ranks*/) {
  barrier(options)->wait();
}

} // namespace ddp::backends::shm
