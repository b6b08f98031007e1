#pragma once

#include <ddp/internal/check.h>

#include <c10/core/Device.h>
#include <torch/arg.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ddp {

/// Options of `init_process_group`. All of them are optional. The program's
/// values override the environment, which overrides the defaults.
struct ProcessGroupOptions {
  /// "gloo" (CPU), "nccl" (CUDA, with gloo for CPU tensors), "mpi" (CPU, and
  /// CUDA if MPI supports it), "shm" (CPU, ranks of one host, by shared
  /// memory), "hierarchical" (CPU, shm within hosts and gloo between them;
  /// groups split from it get the backend for their hosts) or "auto". "auto"
  /// selects nccl if every local rank has a GPU; else shm on one host,
  /// hierarchical if several hosts have several ranks, gloo if each has one.
  /// Over gloo, results equal those of Python's DistributedDataParallel bit for
  /// bit. Environment: DDP_BACKEND.
  TORCH_ARG(std::string, backend);

  /// The limit of every wait, for the other ranks to arrive and for each
  /// collective. Environment: DDP_TIMEOUT, in seconds. Default: 10 minutes.
  TORCH_ARG(std::optional<std::chrono::milliseconds>, timeout);

  /// The time after which a wait for other ranks is reported on stderr, once,
  /// with the program's call, the missing ranks, and the calls in which they
  /// wait. Environment: DDP_WAIT_NOTICE, in seconds. Default: 10 seconds.
  TORCH_ARG(std::optional<std::chrono::milliseconds>, wait_notice);

  /// This process's rank, in [0, world_size). Environment: RANK, or the
  /// variables of mpirun, srun and others.
  TORCH_ARG(std::optional<int64_t>, rank);

  /// Number of processes. Environment: WORLD_SIZE, or as for `rank`.
  /// Default: 1.
  TORCH_ARG(std::optional<int64_t>, world_size);

  /// Host name or address of rank 0. Environment: MASTER_ADDR. Default: from
  /// PMIx, MPI or Slurm's variables.
  TORCH_ARG(std::string, master_addr);

  /// TCP port on that host. Environment: MASTER_PORT.
  TORCH_ARG(std::optional<int64_t>, master_port);

  /// Network interface ("eth1") over which gloo and NCCL reach other hosts,
  /// unless GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME name another; may differ
  /// between hosts. If MASTER_ADDR is an address of this interface, rank 0's
  /// store listens only there. Environment: DDP_INTERFACE. Default: for gloo,
  /// the interface over which this host reaches MASTER_ADDR; for NCCL, NCCL's
  /// choice.
  TORCH_ARG(std::string, interface);

  /// The device of tensors: `torch::kCPU` or `torch::kCUDA`, the latter with an
  /// index or, without one, the GPU of the local rank. Environment: DDP_DEVICE
  /// ("cpu", "cuda", "cuda:1"). Default: CUDA if the backend is unset or nccl
  /// and no host has more ranks than usable GPUs, else CPU.
  TORCH_ARG(std::optional<c10::Device>, device);

  /// Whether ranks may share a GPU, over gloo, if there are fewer GPUs than
  /// ranks; for experiments. Environment: DDP_SHARE_GPUS (0 or 1). Default: no;
  /// two ranks on one GPU are then an error.
  TORCH_ARG(std::optional<bool>, share_gpus);

  /// Whether ranks compare gradients in the first two backward passes, and
  /// parameters in the group's first three checkpoints and at the end of a
  /// Reducer. Ranks warn if all gradients are equal or parameters differ. Must
  /// be the same on all ranks. Each comparison costs one pass over the tensors.
  /// Environment: DDP_CHECK_REPLICAS (0 or 1). Default: yes.
  TORCH_ARG(std::optional<bool>, check_replicas);

  /// Whether an uncaught exception is reported to the other ranks, whose waits
  /// then throw with its message. The exception is also written to the file
  /// that TORCHELASTIC_ERROR_FILE names, for ddprun's and torchrun's report, as
  /// is the stack of a crash by a signal. `init_process_group` installs a
  /// handler in front of `std::terminate`'s. If the variable is set, the
  /// function also installs handlers of SIGSEGV, SIGBUS, SIGFPE, SIGILL and
  /// SIGABRT, unless others are installed.
  TORCH_ARG(bool, report_uncaught) = true;
};

} // namespace ddp
