#pragma once

#include <ddp/internal/check.h>

#include <c10/core/Device.h>
#include <torch/arg.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ddp {

/// Options of `init_process_group`, all of which are optional. The program's
/// values override the environment, which overrides the defaults.
struct ProcessGroupOptions {
  /// The backend: "gloo" (CPU), "nccl" (CUDA, with gloo for CPU tensors), "mpi"
  /// (CPU, and CUDA if MPI supports it), "shm" (CPU, shared memory between
  /// ranks of one host), "hierarchical" (CPU, shm within hosts and gloo between
  /// hosts; groups split from it get the backend for their hosts) or "auto".
  /// "auto" selects nccl if every local rank has a GPU. Otherwise, "auto"
  /// selects shm on one host, hierarchical if several hosts have several ranks,
  /// and gloo if each host has one rank. Over gloo, results equal those of
  /// Python's DistributedDataParallel bit for bit. Environment: DDP_BACKEND.
  TORCH_ARG(std::string, backend);

  /// The limit of every wait: for other ranks to arrive, and for each
  /// collective. Environment: DDP_TIMEOUT, in seconds. Default: 10 minutes.
  TORCH_ARG(std::optional<std::chrono::milliseconds>, timeout);

  /// The time after which a wait for other ranks is reported on stderr, once,
  /// with the program's call, the missing ranks, and the calls in which those
  /// ranks wait. Environment: DDP_WAIT_NOTICE, in seconds. Default: 10 seconds.
  TORCH_ARG(std::optional<std::chrono::milliseconds>, wait_notice);

  /// This process's rank, in [0, world_size). Environment: RANK, or the
  /// variables of mpirun, srun and other launchers.
  TORCH_ARG(std::optional<int64_t>, rank);

  /// The number of processes. Environment: WORLD_SIZE, or as for `rank`.
  /// Default: 1.
  TORCH_ARG(std::optional<int64_t>, world_size);

  /// The host name or address of rank 0. Environment: MASTER_ADDR. Default:
  /// from PMIx, MPI or Slurm's variables.
  TORCH_ARG(std::string, master_addr);

  /// The TCP port on rank 0's host. Environment: MASTER_PORT.
  TORCH_ARG(std::optional<int64_t>, master_port);

  /// The network interface ("eth1") over which gloo and NCCL reach other hosts,
  /// unless GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names another interface.
  /// The interface may differ between hosts. If MASTER_ADDR is an address of
  /// this interface, rank 0's store listens only on that address. Environment:
  /// DDP_INTERFACE. Default: for gloo, the interface over which this host
  /// reaches MASTER_ADDR; for NCCL, NCCL's choice.
  TORCH_ARG(std::string, interface);

  /// The device of tensors: `torch::kCPU` or `torch::kCUDA`. CUDA without an
  /// index selects the GPU of the local rank. Environment: DDP_DEVICE ("cpu",
  /// "cuda", "cuda:1"). Default: CUDA if the backend is unset, "auto" or "nccl"
  /// and no host has more ranks than usable GPUs (with `share_gpus`: if each
  /// has one); otherwise CPU, or for "nccl" an error (`from_mpi`: an unset
  /// backend is "mpi").
  TORCH_ARG(std::optional<c10::Device>, device);

  /// Whether ranks may share a GPU, over gloo, if a host has fewer GPUs than
  /// ranks; for experiments. Environment: DDP_SHARE_GPUS (0 or 1). Default: no,
  /// so two ranks on one GPU are an error.
  TORCH_ARG(std::optional<bool>, share_gpus);

  /// Whether ranks compare gradients in the first two backward passes and the
  /// first three steps of a `ZeroRedundancyOptimizer`, and parameters in the
  /// group's first three checkpoints and when a Reducer without a hook is
  /// destroyed. Ranks warn if all gradients of the passes are equal, those of
  /// the steps differ, or parameters differ. This option must be the same on
  /// all ranks. Each comparison costs one pass over the tensors. Environment:
  /// DDP_CHECK_REPLICAS (0 or 1). Default: yes.
  TORCH_ARG(std::optional<bool>, check_replicas);

  /// Whether an uncaught exception is reported to the other ranks, whose waits
  /// then throw with the exception's message. The exception, or the stack of a
  /// crash by a signal, is also written to the file that
  /// TORCHELASTIC_ERROR_FILE names, for ddprun's or torchrun's report.
  /// `init_process_group` installs a terminate handler that calls the previous
  /// one. If TORCHELASTIC_ERROR_FILE is set, or DDP_DEBUG is info or detail,
  /// the function also installs handlers for SIGSEGV, SIGBUS, SIGFPE, SIGILL
  /// and SIGABRT, unless the program has handlers for them.
  TORCH_ARG(bool, report_uncaught) = true;
};

} // namespace ddp
