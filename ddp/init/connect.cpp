#include <ddp/backends/mpi.h>
#include <ddp/backends/nccl.h>
#include <ddp/debug/backend_wrapper.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/init/backend_connection.h>
#include <ddp/init/unreachable_hosts.h>
#include <ddp/init/watchdog.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/support/detached_task.h>

#include <ATen/SequenceNumber.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/thread_name.h>

#include <algorithm>
#include <exception>
#include <vector>

namespace ddp::detail {
namespace {

using BackendType = c10d::ProcessGroup::BackendType;
using Clock = std::chrono::steady_clock;

constexpr auto kEndTime = std::chrono::seconds(10);
constexpr auto kLook = std::chrono::milliseconds(20);

void connect_gloo(ProcessGroupImpl& impl) {
  const auto gloo = debug::wrap_backend(
      impl, connect_over_gloo(impl, backend_options(impl, "gloo")));
  impl.group->setBackend(c10::kCPU, BackendType::GLOO, gloo);
  impl.group->setDefaultBackend(BackendType::GLOO);
  if (impl.backend != "nccl" && impl.device.is_cuda()) {
    impl.group->setBackend(c10::kCUDA, BackendType::GLOO, gloo);
  }
}

void connect_nccl(ProcessGroupImpl& impl) {
  const auto nccl =
      backends::nccl::create(backend_options(impl, "nccl"), impl.device);
  impl.group->setBackend(
      c10::kCUDA, BackendType::NCCL, debug::wrap_backend(impl, nccl));
  impl.group->setDefaultBackend(BackendType::NCCL);
  guarded(impl, "connecting over NCCL", [&] {
    // The call has no timeout and cannot be aborted.
    auto connected = run_detached([nccl, device = impl.device] {
      nccl->eagerConnectSingleDevice(device);
    });
    wait_with_timeout(impl, [&](std::chrono::milliseconds slice) {
      if (connected.wait_for(slice) != std::future_status::ready) {
        return false;
      }
      connected.get();
      return true;
    });
  });
  impl.watchdog = std::make_unique<Watchdog>(impl, nccl);
}

/// For backends of ddp for which c10d has no name; a group can have one such
/// backend.
void connect_custom(
    ProcessGroupImpl& impl,
    const c10::intrusive_ptr<c10d::Backend>& backend) {
  impl.group->setBackend(
      c10::kCPU, BackendType::CUSTOM, debug::wrap_backend(impl, backend));
  impl.group->setDefaultBackend(BackendType::CUSTOM);
}

void connect_mpi(ProcessGroupImpl& impl) {
  const auto mpi = debug::wrap_backend(
      impl, impl.communicator->create(backend_options(impl, "mpi")));
  impl.group->setBackend(c10::kCPU, BackendType::MPI, mpi);
  impl.group->setBackend(c10::kCUDA, BackendType::MPI, mpi);
  impl.group->setDefaultBackend(BackendType::MPI);
}

/// Keeps a forked child's copy of a connection, which at its end would wait for
/// threads that the child lacks.
template <typename Pointer>
void keep(Pointer copy) {
  static auto& kept = *new std::vector<Pointer>;
  kept.push_back(std::move(copy));
}

/// Ends ddp's NCCL backend. Its destructor alone would abort collectives in
/// progress, maybe the last reduction, and warn.
void end(c10d::ProcessGroup& group, bool complete) {
  const auto nccl = group.getBackend(c10::kCUDA);
  complete ? nccl->shutdown() : nccl->abort();
}

/// If a Reducer was forgotten, each rank has trained a separate net.
void report_unused(const ProcessGroupImpl& impl) {
  if (impl.is_unused_by(at::sequence_number::peek()) &&
      std::uncaught_exceptions() == 0 && impl.first_error.reason().empty()) {
    TORCH_WARN(
        "ddp: the group of ",
        impl.size,
        " ranks ended without averaging anything, although this process has "
        "trained: the ranks' nets differ. Construct a Reducer, "
        "ddp::Reducer reducer(net, group), before the training. "
        "DDP_CHECK_REPLICAS=0 turns this check off");
  }
}

/// Whether all collectives queued on NCCL succeed. The watchdog still runs,
/// since a rank may fail during the wait.
bool is_flushed(ProcessGroupImpl& impl) {
  const auto nccl = impl.group->getBackend(c10::kCUDA);
  const auto flushed = run_detached([nccl] { nccl->waitForPendingWorks(); });
  const auto deadline = Clock::now() + kEndTime;
  while (flushed.wait_for(kLook) != std::future_status::ready) {
    if (!impl.first_error.reason().empty() || Clock::now() > deadline) {
      return false;
    }
  }
  return impl.first_error.reason().empty();
}

} // namespace

void connect(ProcessGroupImpl& impl) {
  connect(impl, nullptr);
  if (impl.backend == "nccl") { // as torch.cuda.set_device in Python's programs
    c10::impl::VirtualGuardImpl(impl.device.type()).setDevice(impl.device);
  }
}

void connect(ProcessGroupImpl& impl, const LivenessCheck& check_liveness) {
  impl.group = c10::make_intrusive<c10d::ProcessGroup>(
      impl.store, static_cast<int>(impl.rank), static_cast<int>(impl.size));
  impl.group->setGroupName("ddp");
  if (impl.backend == "mpi") {
    connect_mpi(impl);
  } else if (impl.backend == "shm") {
    connect_custom(
        impl,
        connect_over_shm(impl, backend_options(impl, "shm"), check_liveness));
  } else if (impl.backend == "hierarchical") {
    connect_custom(impl, connect_by_hosts(impl));
  } else {
    connect_gloo(impl); // also with nccl, for CPU tensors
  }
  if (impl.backend == "nccl") {
    connect_nccl(impl);
  }
  // Some ranks may still be reading addresses from the store, which ends with
  // rank 0, so no rank continues before all are connected.
  wait_for_all_ranks(impl, "connecting");
  forget_addresses(impl);
  debug::log_group(impl);
  heartbeat::joined();
}

void disconnect(ProcessGroupImpl& impl) noexcept {
  if (impl.is_forked_copy()) {
    keep(std::move(impl.group));
    keep(std::move(impl.communicator));
    static_cast<void>(impl.watchdog.release());
    return;
  }
  bool flushed = true;
  try {
    report_unused(impl);
    impl.set_used();
    flushed = !impl.watchdog || !impl.group || std::uncaught_exceptions() > 0 ||
        is_flushed(impl);
  } catch (const std::exception&) {
    flushed = false;
  }
  impl.watchdog.reset();
  auto group = std::move(impl.group);
  // Not a group from from_c10d, or a group that the program still holds.
  const bool nccl = group && impl.backend == "nccl" && !impl.address.empty() &&
      group.use_count() == 1;
  const bool broken = !impl.first_error.reason().empty() || impl.abandoned;
  // A callback of the program may have held the last reference. gloo's end
  // joins the thread that ran this callback.
  const bool on_its_own = c10::getThreadName() == "pt_gloo_runloop";
  if (!group || !(nccl || broken || on_its_own)) {
    return;
  }
  const bool complete = !broken && flushed && std::uncaught_exceptions() == 0;
  try {
    const auto ended =
        run_detached([group = std::move(group), nccl, complete]() mutable {
          if (nccl) {
            end(*group, complete);
          }
          group.reset();
        });
    if (nccl) {
      ended.wait_for(kEndTime);
    }
  } catch (const std::exception&) { // no thread: the group ends here
  }
}

} // namespace ddp::detail

namespace ddp {

detail::ProcessGroupImpl::ProcessGroupImpl()
    : watchdog_thread(std::make_shared<WatchdogThread>()) {}
detail::ProcessGroupImpl::~ProcessGroupImpl() {
  detail::disconnect(*this);
}

bool detail::ProcessGroupImpl::on_one_host() const {
  return std::all_of(hosts.begin(), hosts.end(), [&](const std::string& host) {
    return host == hosts.front();
  });
}

} // namespace ddp
