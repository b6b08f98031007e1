#pragma once

#include <ddp/internal/check.h>

#include <c10/core/Device.h>
#include <torch/arg.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ddp {

/// How `init_process_group` forms the group. Every option is optional; what the
/// program sets wins over the environment, which wins over the default.
struct ProcessGroupOptions {
  /// "gloo" (CPU), "nccl" (CUDA, with gloo for CPU tensors), "mpi" (CPU, and
  /// CUDA if MPI can), "shm" (CPU, ranks of one host, by shared memory),
  /// "hierarchical" (CPU, shm within hosts and gloo between them; parts of that
  /// get what suits their hosts) or "auto": nccl if every local rank has a GPU;
  /// else shm on one host, hierarchical if several hosts have several ranks,
  /// gloo if each has one. Over gloo results have the bits of Python's
  /// DistributedDataParallel. Environment: DDP_BACKEND.
  TORCH_ARG(std::string, backend);

  /// Bounds every wait: for the other ranks to arrive, and for each collective.
  /// Environment: DDP_TIMEOUT, in seconds. Default: 10 minutes.
  TORCH_ARG(std::optional<std::chrono::milliseconds>, timeout);

  /// After how long a wait for other ranks is reported, on stderr, once: what
  /// the program called, who has not come, and what those wait in instead.
  /// Environment: DDP_WAIT_NOTICE, in seconds. Default: 10 seconds.
  TORCH_ARG(std::optional<std::chrono::milliseconds>, wait_notice);

  /// This process's rank, in [0, world_size). Environment: RANK, or what
  /// mpirun, srun and others set.
  TORCH_ARG(std::optional<int64_t>, rank);

  /// Number of processes. Environment: WORLD_SIZE, or likewise. Default: 1.
  TORCH_ARG(std::optional<int64_t>, world_size);

  /// Host name or address of rank 0. Environment: MASTER_ADDR. Default: found
  /// out over PMIx or MPI, or from Slurm's variables.
  TORCH_ARG(std::string, master_addr);

  /// TCP port on that host. Environment: MASTER_PORT.
  TORCH_ARG(std::optional<int64_t>, master_port);

  /// Network interface ("eth1") over which gloo and NCCL talk to other hosts,
  /// unless GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME name another; may differ
  /// between hosts. If MASTER_ADDR is an address of it, rank 0's store listens
  /// there only. Environment: DDP_INTERFACE. Default: the one by which this
  /// host reaches MASTER_ADDR for gloo, NCCL's own choice for NCCL.
  TORCH_ARG(std::string, interface);

  /// Where tensors live: `torch::kCPU` or `torch::kCUDA`, the latter with an
  /// index or, without one, the GPU of the local rank. Environment: DDP_DEVICE
  /// ("cpu", "cuda", "cuda:1"). Default: CUDA if the backend is unset or nccl
  /// and no host has more ranks than usable GPUs, else CPU.
  TORCH_ARG(std::optional<c10::Device>, device);

  /// Whether ranks may use one GPU together, over gloo, if there are fewer GPUs
  /// than ranks: for trying things out. Environment: DDP_SHARE_GPUS (0 or 1).
  /// Default: no, and naming one GPU for two ranks is an error.
  TORCH_ARG(std::optional<bool>, share_gpus);

  /// Whether ranks compare what they train: their gradients in the first two
  /// backwards, their parameters in the group's first three checkpoints and
  /// when a Reducer ends. They warn if gradients are all equal or parameters
  /// differ; the same on all ranks. Costs one pass over them each time.
  /// Environment: DDP_CHECK_REPLICAS (0 or 1). Default: yes.
  TORCH_ARG(std::optional<bool>, check_replicas);

  /// Whether an exception that no one catches is told to the other ranks, whose
  /// waits then throw with its message, and written to the file that
  /// TORCHELASTIC_ERROR_FILE names, for ddprun's and torchrun's report; a crash
  /// by a signal is written there with its stack. To that end
  /// `init_process_group` puts a handler before the one of `std::terminate`,
  /// and, if the file is named, handles SIGSEGV, SIGBUS, SIGFPE, SIGILL and
  /// SIGABRT unless someone else does.
  TORCH_ARG(bool, report_uncaught) = true;
};

} // namespace ddp
