#include <common/numeric_address.h>
#include <ddp/backends/mpi.h>
#include <ddp/backends/nccl.h>
#include <ddp/backends/shm.h>
#include <ddp/environment/environment.h>
#include <ddp/environment/misspelt_variables.h>
#include <ddp/environment/pmix.h>
#include <ddp/failure/crash_handler.h>
#include <ddp/failure/debug_level.h>
#include <ddp/failure/error_file.h>
#include <ddp/failure/flight_recorder.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/init/device_choice.h>
#include <ddp/internal/check.h>
#include <ddp/process_group.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/process_group/uncaught.h>
#include <ddp/process_group/wait_warning.h>
#include <ddp/rendezvous/host.h>
#include <ddp/rendezvous/network_interface.h>
#include <ddp/rendezvous/rendezvous.h>
#include <ddp/rendezvous/store_endpoint.h>
#include <ddp/support/error_text.h>

#include <ATen/SequenceNumber.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>

namespace ddp {
namespace {

using CommunicatorPtr = std::shared_ptr<backends::mpi::Communicator>;
using std::chrono::milliseconds;

bool may_mean_gpus(const std::string& backend) {
  return backend.empty() || backend == "auto" || backend == "nccl";
}

std::string in_seconds(milliseconds time) {
  return c10::str(static_cast<double>(time.count()) / 1000.0, " s");
}

RankInfo describe_self(
    const ProcessGroupOptions& options,
    const LaunchEnvironment& environment) {
  RankInfo self;
  self.host = detail::host_identity();
  self.groups = detail::groups_formed();
  self.local_rank = environment.local_rank.value_or(-1);
  const auto& device = options.device();
  // A query for GPUs starts the CUDA driver, so it is omitted if the CPU is
  // already chosen.
  if (device ? device->is_cuda() : may_mean_gpus(options.backend())) {
    auto gpus = backends::nccl::usable_gpus();
    self.gpus = std::move(gpus.bus_addresses);
    self.gpu_note = std::move(gpus.note);
    self.gpu = device && device->has_index() ? device->index() : -1;
  }
  self.shm_note = backends::shm::unavailable(environment.world_size);
  self.options = {
      {"backend", options.backend().empty() ? "auto" : options.backend()},
      {"device", device ? (device->is_cuda() ? "cuda" : "cpu") : "unset"},
      {"share_gpus", *options.share_gpus() ? "true" : "false"},
      {"DDP_DEBUG",
       debug::debug_level() == debug::DebugLevel::kDetail ? "detail"
                                                          : "off or info"},
      {"check_replicas", *options.check_replicas() ? "true" : "false"}};
  self.times = {
      {"DDP_TIMEOUT", in_seconds(*options.timeout())},
      {"DDP_WAIT_NOTICE", in_seconds(*options.wait_notice())}};
  return self;
}

/// The address at which the other ranks reach this host: the local address from
/// which this host reaches rank 0's host at the address that other hosts use.
std::string reachable_address(const std::vector<RankInfo>& members) {
  const auto elsewhere =
      std::find_if(members.begin(), members.end(), [&](const RankInfo& member) {
        return member.host != members.front().host;
      });
  if (elsewhere == members.end()) {
    return detail::kLoopback;
  }
  // Not this rank's `server`: rank 0's host may resolve its name to a loopback.
  DDP_CHECK_VALUE(
      !detail::is_loopback(elsewhere->server),
      "MASTER_ADDR '{}' refers to the local host on every host, but the ranks "
      "run on several hosts: set it to an address of rank 0's host that other "
      "hosts can reach (torchrun: by --local-addr ADDRESS on each node)",
      elsewhere->server);
  const auto own = detail::address_towards(elsewhere->server);
  return own.empty() ? elsewhere->server : own;
}

void say(const std::string& note, int64_t rank) {
  if (rank == 0 && !note.empty()) {
    TORCH_WARN("ddp: ", note);
  }
}

/// A single process has no backend, unless the program names a backend: then
/// the process gets that backend with one rank.
ProcessGroup group_of_one(
    const ProcessGroupOptions& options,
    const LaunchEnvironment& environment,
    const CommunicatorPtr& communicator) {
  auto impl = std::make_shared<detail::ProcessGroupImpl>();
  const auto choice =
      choose_device(options, {describe_self(options, environment)}, 0);
  say(choice.note, 0);
  impl->device = choice.device;
  impl->timeout = *options.timeout();
  impl->wait_notice = *options.wait_notice();
  impl->scope = detail::scope_of_group(detail::groups_formed(), 1);
  if (!options.backend().empty() && options.backend() != "auto") {
    impl->backend = choice.backend;
    impl->address = detail::kLoopback;
    impl->interface = environment.interface;
    impl->hosts = {detail::host_identity()};
    impl->store = c10::make_intrusive<c10d::HashStore>();
    impl->communicator = communicator;
    detail::connect(*impl);
  }
  return detail::ProcessGroupImpl::group_of(impl);
}

/// Whether the program, or one of its libraries, already uses MPI. Searches the
/// process before it loads a library.
bool is_mpi_initialized() {
  return dlsym(RTLD_DEFAULT, "MPI_Init") &&
      backends::mpi::unavailable().empty() &&
      backends::mpi::library().initialized();
}

/// MPI must agree with the launcher: under the launcher of another MPI, each
/// process is alone in a separate world.
void check_world(
    const LaunchEnvironment& environment,
    const backends::mpi::Communicator& world) {
  DDP_CHECK_VALUE(
      world.rank() == environment.rank &&
          world.size() == environment.world_size,
      "according to {}, this is rank {} of {}, but according to MPI, it is "
      "rank {} of {}: use the mpirun of the MPI that ddp was built with, or "
      "set MASTER_ADDR and MASTER_PORT and use backend gloo or nccl",
      environment.source,
      environment.rank,
      environment.world_size,
      world.rank(),
      world.size());
}

CommunicatorPtr world_of(LaunchEnvironment& environment, milliseconds timeout) {
  auto world = backends::mpi::library().world(timeout);
  if (environment.source.empty()) {
    environment.source = "MPI";
    environment.rank = world->rank();
    environment.world_size = world->size();
    environment.attempt = "ddp";
  }
  check_world(environment, *world);
  return world;
}

/// Uses PMIx, or MPI if PMIx is not available, or if MPI already runs: it is
/// unknown whether that MPI shares its PMIx with ddp.
void rendezvous_by_launcher(
    LaunchEnvironment& environment,
    milliseconds timeout) {
  if (!is_mpi_initialized()) {
    const auto job = detail::pmix_job();
    if (job && job->rank == environment.rank &&
        job->size.value_or(environment.world_size) == environment.world_size) {
      detail::choose_store_endpoint(
          environment,
          [&](const std::string& text) {
            return detail::pmix_broadcast(text, timeout);
          },
          job->size && job->size == job->local_size,
          timeout);
      return;
    }
  }
  DDP_CHECK_VALUE(
      backends::mpi::unavailable().empty(),
      "MASTER_ADDR is not set: according to {}, this is rank {} of {}, and the "
      "host of rank 0 cannot be obtained over PMIx ({}) or MPI ({}): set "
      "MASTER_ADDR and MASTER_PORT (mpirun -x MASTER_ADDR=... -x "
      "MASTER_PORT=...)",
      environment.source,
      environment.rank,
      environment.world_size,
      detail::pmix_unavailable(),
      backends::mpi::unavailable());
  const auto world = world_of(environment, timeout);
  detail::rendezvous_over_mpi(environment, *world, timeout);
}

/// A rank's group after the rendezvous, not yet connected.
std::shared_ptr<detail::ProcessGroupImpl> member_of(
    const LaunchEnvironment& environment,
    const RendezvousResult& met,
    const DeviceChoice& choice) {
  auto impl = std::make_shared<detail::ProcessGroupImpl>();
  const auto place = local_position(met.members, environment.rank);
  impl->rank = environment.rank;
  impl->size = environment.world_size;
  impl->local_rank = place.rank;
  impl->local_size = place.size;
  impl->device = choice.device;
  impl->backend = choice.backend;
  impl->store = met.store;
  impl->hosts_store = impl->rank == 0 && !environment.launcher_hosts_store;
  impl->interface = environment.interface;
  int64_t number = 0;
  for (const auto& member : met.members) {
    impl->hosts.push_back(member.host);
    number = std::max(number, member.groups);
  }
  impl->scope = detail::scope_of_group(number, impl->size);
  return impl;
}

} // namespace

namespace detail {
namespace {

// Global because names must be unique in a process.
std::atomic<int64_t> formed{0};
std::atomic<bool> has_others{false};

} // namespace

int64_t groups_formed() {
  return formed;
}

void check_not_forgotten(
    const ProcessGroup& group,
    const char* user,
    const char* consequence) {
  if (ProcessGroupImpl::of(group).by_default && has_others) {
    TORCH_WARN(detail::format(
        "ddp: a {} was given a group of one, ddp::ProcessGroup(), although "
        "this process is one of several: {}. Pass the group that "
        "init_process_group() returned",
        user,
        consequence));
  }
}

std::string scope_of_group(int64_t number, int64_t size) {
  formed = number + 1;
  has_others = has_others || size > 1;
  return number == 0 ? "" : "/group_" + std::to_string(number);
}

void rendezvous_over_mpi(
    LaunchEnvironment& environment,
    backends::mpi::Communicator& communicator,
    milliseconds timeout) {
  // A hash: two hosts could get the same color, but hardly all.
  const auto color =
      static_cast<int>(std::hash<std::string>()(host_identity()) & 0x7fffffff);
  const auto here =
      communicator.split(color, static_cast<int>(environment.rank));
  choose_store_endpoint(
      environment,
      [&](const std::string& text) { return communicator.broadcast(text); },
      here->size() == communicator.size(),
      timeout);
}

void report_to_launcher(const ProcessGroupOptions& options) {
  heartbeat::attach();
  if (options.report_uncaught()) {
    report_uncaught(nullptr); // first: debug_level() may throw
    if (find_error_file() || debug::debug_level() != debug::DebugLevel::kOff) {
      report_crashes();
    }
  }
  debug::flight_recorder::take_dump_signal();
}

ProcessGroup form_group(
    const ProcessGroupOptions& options,
    LaunchEnvironment environment,
    const CommunicatorPtr& communicator) {
  const heartbeat::Activity activity("init_process_group");
  if (groups_formed() == 0) { // once
    say(misspelt_variable(environ), environment.rank);
  }
  if (environment.world_size == 1) {
    auto group = group_of_one(options, environment, communicator);
    heartbeat::joined();
    return group;
  }
  const auto timeout = *options.timeout();
  auto self = describe_self(options, environment);
  self.server = resolve(environment.master_addr, timeout);
  try {
    use_interface(environment, self.server);
  } catch (const c10::ValueError& error) {
    self.fault = error.what_without_backtrace(); // reported by all ranks
  }
  const auto met =
      rendezvous(environment, self, timeout, *options.wait_notice());
  say(different_times(
          met.members,
          c10::str(environment.master_addr, ":", environment.master_port)),
      environment.rank);
  const auto choice = choose_device(options, met.members, environment.rank);
  say(choice.note, environment.rank);

  auto impl = member_of(environment, met, choice);
  impl->timeout = timeout;
  impl->checks_replicas = *options.check_replicas();
  impl->wait_notice = *options.wait_notice();
  impl->address = reachable_address(met.members);
  impl->communicator = choice.backend == "mpi" ? communicator : nullptr;
  impl->failure_store = FailureStore::open(
      impl->store, impl->rank, impl->size, impl->hosts_store);
  if (options.report_uncaught()) {
    report_uncaught(impl->failure_store);
  }
  connect(*impl);
  if (impl->rank == 0 && impl->checks_replicas) { // one rank reports
    impl->expect_use(at::sequence_number::peek());
  }
  return detail::ProcessGroupImpl::group_of(impl);
}

namespace {

/// The time to report to the other ranks why a process cannot participate.
constexpr std::chrono::seconds kTellTime(2);

void tell_others(const ProcessGroupOptions& options, const std::string& fault) {
  try {
    auto environment =
        read_launch_environment(ProcessGroupOptions(options).rank(0));
    if (environment.world_size > 1 && !environment.master_addr.empty()) {
      environment.rank = environment.world_size; // not a valid rank
      RankInfo self;
      self.server = resolve(environment.master_addr, kTellTime);
      self.fault = fault;
      rendezvous(environment, self, kTellTime, 2 * kTellTime);
    }
  } catch (const std::exception&) { // this process reports it itself
  }
}

LaunchEnvironment launch_environment(const ProcessGroupOptions& options) {
  try {
    return read_launch_environment(
        options, process_environment(), detail::pmix_job);
  } catch (const c10::ValueError& error) {
    tell_others(options, error.what_without_backtrace());
    throw;
  }
}

} // namespace
} // namespace detail

ProcessGroup init_process_group(const ProcessGroupOptions& program_options) {
  detail::report_to_launcher(program_options);
  const auto options = complete_options(program_options);
  auto environment = detail::launch_environment(options);
  say(environment.note, environment.rank);
  const auto timeout = *options.timeout();
  std::optional<detail::WaitWarning> warning;
  if (environment.world_size > 1 &&
      (options.backend() == "mpi" || environment.master_addr.empty())) {
    warning.emplace(
        *options.wait_notice(),
        c10::str("rank ", environment.rank, " of ", environment.world_size),
        "init_process_group: not all ranks have called it");
  }
  const auto world =
      options.backend() == "mpi" ? world_of(environment, timeout) : nullptr;
  if (environment.world_size > 1 && environment.master_addr.empty()) {
    if (world) {
      detail::rendezvous_over_mpi(environment, *world, timeout);
    } else {
      rendezvous_by_launcher(environment, timeout);
    }
  }
  warning.reset();
  return detail::form_group(options, environment, world);
}

} // namespace ddp
