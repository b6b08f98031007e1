#include <ddp/backends/gloo.h>
#include <ddp/backends/mpi.h>
#include <ddp/backends/nccl.h>
#include <ddp/detail/process_group_impl.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace ddp::detail {
namespace {

using BackendType = c10d::ProcessGroup::BackendType;

backends::BackendOptions options_of(
    const ProcessGroup::Impl& impl,
    const char* prefix) {
  backends::BackendOptions options;
  options.store = c10::make_intrusive<c10d::PrefixStore>(prefix, impl.store);
  options.rank = static_cast<int>(impl.rank);
  options.size = static_cast<int>(impl.size);
  options.timeout = impl.timeout;
  options.address = impl.address;
  return options;
}

void connect_gloo(ProcessGroup::Impl& impl) {
  const auto gloo = backends::gloo::create(options_of(impl, "gloo"));
  impl.group->setBackend(c10::kCPU, BackendType::GLOO, gloo);
  impl.group->setDefaultBackend(BackendType::GLOO);
  if (impl.backend != "nccl" && impl.device.is_cuda()) {
    impl.group->setBackend(c10::kCUDA, BackendType::GLOO, gloo);
  }
}

void connect_nccl(ProcessGroup::Impl& impl) {
  impl.group->setBackend(
      c10::kCUDA,
      BackendType::NCCL,
      backends::nccl::create(options_of(impl, "nccl"), impl.device));
  impl.group->setDefaultBackend(BackendType::NCCL);
}

void connect_mpi(ProcessGroup::Impl& impl) {
  const auto mpi = impl.communicator->create(options_of(impl, "mpi"));
  impl.group->setBackend(c10::kCPU, BackendType::MPI, mpi);
  impl.group->setBackend(c10::kCUDA, BackendType::MPI, mpi);
  impl.group->setDefaultBackend(BackendType::MPI);
}

} // namespace

void connect(ProcessGroup::Impl& impl) {
  impl.group = c10::make_intrusive<c10d::ProcessGroup>(
      impl.store, static_cast<int>(impl.rank), static_cast<int>(impl.size));
  impl.group->setGroupName("ddp");
  if (impl.backend == "mpi") {
    connect_mpi(impl);
  } else {
    connect_gloo(impl); // also beside nccl, for CPU tensors
  }
  if (impl.backend == "nccl") {
    connect_nccl(impl);
  }
  // Some ranks may still be reading addresses from the store, which ends with
  // rank 0: nobody goes on before all are connected.
  meet(impl, "connecting");
}

} // namespace ddp::detail
