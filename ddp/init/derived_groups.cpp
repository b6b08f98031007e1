#include <common/random_name.h>
#include <common/seconds.h>
#include <ddp/backends/mpi.h>
#include <ddp/environment/environment.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/init/backend_connection.h>
#include <ddp/init/device_choice.h>
#include <ddp/internal/check.h>
#include <ddp/process_group.h>
#include <ddp/rendezvous/host.h>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <numeric>
#include <tuple>

// Groups that are made from others.

namespace ddp {
namespace {

using Impl = detail::ProcessGroupImpl;

void find_local_position(Impl& impl) {
  std::vector<RankInfo> members(impl.hosts.size());
  for (size_t r = 0; r < members.size(); ++r) {
    members[r].host = impl.hosts[r];
  }
  const auto place = local_position(members, impl.rank);
  impl.local_rank = place.rank;
  impl.local_size = place.size;
}

/// A new group with the properties that it inherits from `parent`.
std::shared_ptr<Impl> child_of(Impl& parent, const std::string& name) {
  parent.set_used();
  auto child = std::make_shared<Impl>();
  child->device = parent.device;
  child->backend = parent.backend;
  child->timeout = parent.timeout;
  child->wait_notice = parent.wait_notice;
  child->checks_replicas = parent.checks_replicas;
  child->address = parent.address;
  child->interface = parent.interface;
  child->store =
      c10::make_intrusive<c10d::PrefixStore>("group_" + name, parent.store);
  child->hosts_store = parent.hosts_store;
  child->failure_store = parent.failure_store;
  child->watchdog_thread = parent.watchdog_thread;
  child->scope = parent.scope + "/" + name;
  return child;
}

/// A rank's arguments of a split.
struct Wish {
  int64_t color = 0;
  int64_t key = 0;
  int64_t rank = 0;
};

std::vector<Wish> exchange(const ProcessGroup& group, const Wish& own) {
  const auto gathered =
      group.all_gather(at::tensor({own.color, own.key}, at::kLong));
  std::vector<Wish> wishes;
  for (int64_t r = 0; r < group.size(); ++r) {
    const auto* values = gathered[r].const_data_ptr<int64_t>();
    wishes.push_back({values[0], values[1], r});
    // Each rank checks all colors, so that all ranks throw.
    DDP_CHECK_VALUE(
        values[0] >= -1 && values[0] <= std::numeric_limits<int>::max(),
        "split: color {} of rank {} is neither -1 nor from 0 to {}",
        values[0],
        r,
        std::numeric_limits<int>::max());
  }
  return wishes;
}

/// The ranks of this rank's color, in the order of the new group.
std::vector<int64_t> members_of(std::vector<Wish> wishes, int64_t color) {
  std::sort(wishes.begin(), wishes.end(), [](const Wish& a, const Wish& b) {
    return std::tie(a.key, a.rank) < std::tie(b.key, b.rank);
  });
  std::vector<int64_t> members;
  for (const auto& wish : wishes) {
    if (wish.color == color) {
      members.push_back(wish.rank);
    }
  }
  return members;
}

/// A group from from_c10d has a store but no addresses, so its ranks must be on
/// one host.
std::string address_for_split(const Impl& impl) {
  if (!impl.address.empty()) {
    return impl.address;
  }
  DDP_CHECK(
      impl.store &&
          (impl.backend == "gloo" || impl.backend == "nccl" ||
           impl.backend == "shm"),
      "split: a group from from_c10d with backend {}{} cannot be reconnected. "
      "Split the group by c10d and pass the parts to from_c10d",
      impl.backend,
      impl.store ? "" : " and no store");
  DDP_CHECK(
      impl.on_one_host(),
      "split: a group from from_c10d whose ranks run on several hosts cannot "
      "be reconnected, since their addresses are unknown. Split the group by "
      "c10d and pass the parts to from_c10d, or form it by "
      "init_process_group");
  return detail::kLoopback;
}

/// MPI orders the new ranks by `place`, not by the keys of `split`, since MPI's
/// keys are ints.
std::shared_ptr<backends::mpi::Communicator> split_communicator(
    const Impl& impl,
    int64_t color,
    int64_t place) {
  return impl.communicator
      ? impl.communicator->split(
            static_cast<int>(color), static_cast<int>(place))
      : nullptr;
}

/// A scope that no group of any of the ranks has.
std::string scope_of_next_group(const ProcessGroup& group) {
  const auto own = at::scalar_tensor(detail::groups_formed(), at::kLong);
  int64_t number = 0;
  for (const auto& of_rank : group.all_gather(own)) {
    number = std::max(number, of_rank.item<int64_t>());
  }
  return detail::scope_of_group(number, group.size());
}

/// c10d's timeout, or ddp's default if the backend provides none.
std::chrono::milliseconds timeout_of(
    c10d::ProcessGroup& group,
    c10::Device device) {
  try {
    const auto options = group.getBackend(device.type())->getBackendOptions();
    if (options->timeout.count() > 0) { // c10d's kNoTimeout is 0
      return backends::bounded(options->timeout);
    }
  } catch (const c10::Error&) { // the backend has no options
  }
  return Impl().timeout;
}

/// A group also exchanges hosts, errors and other CPU tensors of this library.
void check_sends_cpu_tensors(const c10d::ProcessGroup& group) {
  const auto devices = group.getDeviceTypes();
  const auto is_cpu = [](c10::Device device) { return device.is_cpu(); };
  DDP_CHECK_VALUE(
      devices.empty() || std::any_of(devices.begin(), devices.end(), is_cpu),
      "from_c10d: the group has no backend for CPU tensors, which ranks also "
      "exchange: add gloo, in Python by "
      "init_process_group(\"cpu:gloo,cuda:nccl\")");
}

} // namespace

ProcessGroup ProcessGroup::duplicate() const {
  // Connecting cannot be interrupted if a rank fails before it arrives.
  detail::wait_for_all_ranks(*impl_, "duplicate");
  if (impl_->address.empty()) {
    // A group of one, or from from_c10d, which cannot be connected again.
    return *this;
  }
  auto impl = child_of(*impl_, std::to_string(impl_->children++));
  impl->rank = impl_->rank;
  impl->size = impl_->size;
  impl->local_rank = impl_->local_rank;
  impl->local_size = impl_->local_size;
  impl->hosts = impl_->hosts;
  impl->communicator = impl_->communicator;
  impl->joined = impl_->joined;
  std::vector<int64_t> ranks(size());
  std::iota(ranks.begin(), ranks.end(), 0);
  detail::connect(*impl, [&] { return detail::ended_rank(*impl_, ranks); });
  return Impl::group_of(impl);
}

ProcessGroup ProcessGroup::split(int64_t color, int64_t key) const {
  const detail::heartbeat::Activity activity("split");
  const auto wishes = exchange(*this, {color, key, rank()});
  const auto members = members_of(wishes, color);
  const auto own = std::find(members.begin(), members.end(), rank());
  const auto place = std::distance(members.begin(), own);
  const auto address = size() > 1 ? address_for_split(*impl_) : "";
  auto communicator = split_communicator(*impl_, color, place);
  const auto name = c10::str(impl_->children++, "_", color);
  impl_->is_split = true;
  if (color == -1 || members.size() == 1) {
    auto alone = std::make_shared<Impl>();
    alone->device = impl_->device;
    alone->timeout = impl_->timeout;
    alone->wait_notice = impl_->wait_notice;
    return ProcessGroup(alone);
  }
  auto impl = child_of(*impl_, name);
  impl->rank = place;
  impl->size = static_cast<int64_t>(members.size());
  for (const auto member : members) {
    impl->hosts.push_back(impl_->hosts[member]);
  }
  find_local_position(*impl);
  if (impl->backend == "hierarchical") {
    impl->backend = cpu_backend(impl->hosts);
  }
  impl->address = address;
  impl->communicator = std::move(communicator);
  if (const auto whole = impl->failure_store) {
    // The whole group's store reports uncaught exceptions: the part keeps it.
    const auto part = whole->of(members);
    impl->failure_store = {part.get(), [whole, part](detail::FailureStore*) {}};
  }
  detail::connect(*impl, [&] { return detail::ended_rank(*impl_, members); });
  return Impl::group_of(impl);
}

ProcessGroup ProcessGroup::from_c10d(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    c10::Device device) {
  DDP_CHECK_VALUE(group, "from_c10d: the group is null");
  check_sends_cpu_tensors(*group);
  auto impl = std::make_shared<Impl>();
  impl->rank = group->getRank();
  impl->size = group->getSize();
  impl->device = device.is_cpu() || device.has_index()
      ? device
      : c10::impl::VirtualGuardImpl(device.type()).getDevice();
  impl->backend = group->getBackendName();
  if (impl->backend == "custom") { // c10d's name for unknown backends
    impl->backend = group->getBackend(device.type())->getBackendName();
  }
  impl->timeout = timeout_of(*group, device);
  const auto options = complete_options({});
  impl->wait_notice = *options.wait_notice();
  impl->checks_replicas = *options.check_replicas();
  impl->store = group->getStore();
  impl->hosts_store = impl->rank == 0; // usually true
  impl->group = group;
  ProcessGroup result(impl);
  impl->hosts = result.all_gather(detail::host_identity());
  find_local_position(*impl);
  impl->scope = scope_of_next_group(result);
  // The store may have keys of earlier groups.
  const auto name = result.broadcast(detail::random_name());
  if (impl->store) {
    impl->store =
        c10::make_intrusive<c10d::PrefixStore>("ddp_" + name, impl->store);
    impl->failure_store = detail::FailureStore::open(
        impl->store, impl->rank, impl->size, impl->hosts_store);
  }
  return result;
}

} // namespace ddp
