#include <ddp/debug/observed.h>

#include <ddp/debug/backend.h>
#include <ddp/failure/level.h>
#include <ddp/support/own_thread.h>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <set>
#include <utility>

namespace ddp::debug {
namespace {

std::string name_of(const detail::ProcessGroupImpl& group) {
  return "ddp" + group.scope;
}

std::unique_ptr<CallOrder> order_of(
    const detail::ProcessGroupImpl& group,
    const flight_recorder::Caller& caller) {
  if (group.size == 1) {
    return nullptr;
  }
  // Waiting keeps a connection busy: not the one that others use.
  auto store = c10::make_intrusive<c10d::PrefixStore>(
      "debug_" + caller.backend,
      detail::answered_within(
          group.timeout, [store = group.store] { return store->clone(); }));
  return std::make_unique<CallOrder>(
      std::move(store), group.board, group.scope, caller, group.timeout);
}

} // namespace

c10::intrusive_ptr<c10d::Backend> observed(
    const detail::ProcessGroupImpl& group,
    c10::intrusive_ptr<c10d::Backend> backend) {
  const auto wanted = level();
  if (wanted == Level::kOff) {
    return backend;
  }
  flight_recorder::enable(group.rank, group.size);
  flight_recorder::Caller caller{
      name_of(group), backend->getBackendName(), group.rank, group.size};
  auto order = wanted == Level::kDetail ? order_of(group, caller) : nullptr;
  return c10::make_intrusive<Backend>(
      std::move(backend), std::move(caller), std::move(order));
}

const c10d::Backend& unobserved(const c10d::Backend& backend) {
  const auto* wrapper = dynamic_cast<const Backend*>(&backend);
  return wrapper ? wrapper->inner() : backend;
}

void announce(const detail::ProcessGroupImpl& group) {
  if (group.rank == 0 && level() != Level::kOff) {
    const std::set<std::string> hosts(group.hosts.begin(), group.hosts.end());
    TORCH_WARN(
        "ddp: group ",
        name_of(group),
        ": size ",
        group.size,
        ", hosts ",
        hosts.size(),
        ", backend ",
        group.backend,
        ", device of rank 0 ",
        group.device,
        ", timeout ",
        group.timeout.count() / 1000.0,
        " s");
  }
}

void announce_reducer(
    const ProcessGroup& group,
    const std::string& name,
    size_t parameters,
    size_t buckets) {
  if (group.rank() == 0 && level() != Level::kOff) {
    TORCH_WARN(
        "ddp: Reducer ddp",
        name,
        ": trained parameters ",
        parameters,
        ", buckets ",
        buckets,
        ", group ",
        name_of(detail::ProcessGroupImpl::of(group)),
        ", backend ",
        group.backend());
  }
}

} // namespace ddp::debug
