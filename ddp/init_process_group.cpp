#include <ddp/backends/gloo.h>
#include <ddp/backends/nccl.h>
#include <ddp/detail/host.h>
#include <ddp/detail/process_group_impl.h>
#include <ddp/detail/uncaught.h>
#include <ddp/device_choice.h>
#include <ddp/environment.h>
#include <ddp/process_group.h>
#include <ddp/rendezvous.h>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <random>
#include <set>

namespace ddp {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

Member describe_self(const ProcessGroupOptions& options) {
  Member self{detail::host_identity(), {}, ""};
  // Asking for GPUs costs a start of the CUDA driver: not where the CPU is
  // decided on.
  if (options.device() ? options.device()->is_cuda()
                       : options.backend() != "gloo") {
    auto gpus = backends::nccl::usable_gpus();
    self.gpus = std::move(gpus.bus_addresses);
    self.gpu_note = std::move(gpus.note);
  }
  return self;
}

std::string reachable_address(
    const LaunchEnvironment& environment,
    const std::vector<Member>& members,
    std::chrono::milliseconds timeout) {
  std::set<std::string> hosts;
  for (const auto& member : members) {
    hosts.insert(member.host);
  }
  if (hosts.size() == 1) {
    return kLoopback;
  }
  const auto master = detail::resolve(environment.master_addr, timeout);
  TORCH_CHECK_VALUE(
      !master.loopback,
      "MASTER_ADDR '",
      environment.master_addr,
      "' means each host itself, but the ranks run on ",
      hosts.size(),
      " hosts: set it to an address of rank 0's host that the others reach");
  return detail::address_towards(master.address, environment.master_port);
}

void say(const DeviceChoice& choice, int64_t rank) {
  if (rank == 0 && !choice.note.empty()) {
    TORCH_WARN("ddp: ", choice.note);
  }
}

/// A process on its own has no peers to talk to, unless the program asked for
/// a backend by name: then it gets that backend with one rank.
ProcessGroup group_of_one(const ProcessGroupOptions& options) {
  auto impl = std::make_shared<ProcessGroup::Impl>();
  const auto choice =
      choose_device(options, {describe_self(options)}, 0, std::nullopt);
  say(choice, 0);
  impl->device = choice.device;
  impl->timeout = *options.timeout();
  if (!options.backend().empty() && options.backend() != "auto") {
    impl->backend = choice.backend;
    impl->address = kLoopback;
    impl->store = c10::make_intrusive<c10d::HashStore>();
    detail::connect(*impl);
  }
  return ProcessGroup(impl);
}

} // namespace

namespace detail {

void connect(ProcessGroup::Impl& impl) {
  using BackendType = c10d::ProcessGroup::BackendType;
  backends::BackendOptions options;
  options.rank = static_cast<int>(impl.rank);
  options.size = static_cast<int>(impl.size);
  options.timeout = impl.timeout;
  options.address = impl.address;
  impl.group = c10::make_intrusive<c10d::ProcessGroup>(
      impl.store, options.rank, options.size);
  impl.group->setGroupName("ddp");

  options.store = c10::make_intrusive<c10d::PrefixStore>("gloo", impl.store);
  const auto gloo = backends::gloo::create(options);
  impl.group->setBackend(c10::kCPU, BackendType::GLOO, gloo);
  impl.group->setDefaultBackend(BackendType::GLOO);
  if (impl.backend == "nccl") {
    options.store = c10::make_intrusive<c10d::PrefixStore>("nccl", impl.store);
    impl.group->setBackend(
        c10::kCUDA,
        BackendType::NCCL,
        backends::nccl::create(options, impl.device));
    impl.group->setDefaultBackend(BackendType::NCCL);
  } else if (impl.device.is_cuda()) {
    impl.group->setBackend(c10::kCUDA, BackendType::GLOO, gloo);
  }
  // Some ranks may still be reading addresses from the store, which ends with
  // rank 0: nobody goes on before all are connected.
  meet(impl, "connecting");
}

} // namespace detail

ProcessGroup init_process_group(const ProcessGroupOptions& program_options) {
  const auto options = complete_options(program_options);
  const auto environment = read_launch_environment(options);
  if (environment.world_size == 1) {
    if (options.report_uncaught()) {
      detail::report_uncaught(nullptr);
    }
    return group_of_one(options);
  }
  const auto timeout = *options.timeout();
  const auto met = rendezvous(environment, describe_self(options), timeout);
  const auto choice = choose_device(
      options, met.members, environment.rank, environment.local_rank);
  say(choice, environment.rank);

  auto impl = std::make_shared<ProcessGroup::Impl>();
  const auto place =
      local_place(met.members, environment.rank, environment.local_rank);
  impl->rank = environment.rank;
  impl->size = environment.world_size;
  impl->local_rank = place.rank;
  impl->local_size = place.size;
  impl->device = choice.device;
  impl->backend = choice.backend;
  impl->timeout = timeout;
  impl->store = met.store;
  impl->address = reachable_address(environment, met.members, timeout);
  impl->board = detail::FailureBoard::open(
      impl->store,
      impl->rank,
      impl->size,
      impl->rank == 0 && !environment.launcher_hosts_store);
  if (options.report_uncaught()) {
    detail::report_uncaught(impl->board);
  }
  detail::connect(*impl);
  return ProcessGroup(impl);
}

ProcessGroup ProcessGroup::duplicate() const {
  // Connecting cannot be interrupted where a rank fails before it comes.
  detail::meet(*impl_, "duplicate");
  if (impl_->address.empty()) {
    // Alone, or a group that was handed to us: no way to connect it anew.
    return *this;
  }
  const auto name = std::to_string(impl_->children++);
  auto impl = std::make_shared<Impl>();
  impl->rank = impl_->rank;
  impl->size = impl_->size;
  impl->local_rank = impl_->local_rank;
  impl->local_size = impl_->local_size;
  impl->device = impl_->device;
  impl->backend = impl_->backend;
  impl->timeout = impl_->timeout;
  impl->address = impl_->address;
  impl->store =
      c10::make_intrusive<c10d::PrefixStore>("group_" + name, impl_->store);
  impl->board = impl_->board;
  impl->scope = impl_->scope + "/" + name;
  detail::connect(*impl);
  return ProcessGroup(impl);
}

ProcessGroup ProcessGroup::from_c10d(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    c10::Device device) {
  TORCH_CHECK_VALUE(group, "from_c10d: the group is null");
  auto impl = std::make_shared<Impl>();
  impl->rank = group->getRank();
  impl->size = group->getSize();
  impl->device = device;
  impl->backend = group->getBackendName();
  impl->store = group->getStore();
  impl->group = group;
  ProcessGroup result(impl);
  const auto hosts = result.all_gather(detail::host_identity());
  std::vector<Member> members(hosts.size());
  for (size_t r = 0; r < hosts.size(); ++r) {
    members[r].host = hosts[r];
  }
  const auto place = local_place(members, impl->rank, std::nullopt);
  impl->local_rank = place.rank;
  impl->local_size = place.size;
  // The store may hold what groups before this one left.
  const auto name = result.broadcast(std::to_string(std::random_device()()));
  if (impl->store) {
    impl->board = detail::FailureBoard::open(
        c10::make_intrusive<c10d::PrefixStore>("ddp_" + name, impl->store),
        impl->rank,
        impl->size,
        impl->rank == 0);
  }
  return result;
}

} // namespace ddp
