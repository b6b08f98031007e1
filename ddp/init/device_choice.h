#pragma once

#include <ddp/process_group_options.h>
#include <ddp/rendezvous/rendezvous.h>

namespace ddp {

/// A rank's place among the ranks of its host.
struct LocalPlace {
  int64_t rank = 0;
  int64_t size = 1;
};

/// Finds a rank's place by comparing hosts. The launcher's word on the local
/// rank counts where it is there: it may know of containers that look like one
/// host or like several.
LocalPlace local_place(const std::vector<RankInfo>& members, int64_t rank);

/// The backend for CPU tensors of ranks on these hosts, if those of each host
/// can share memory: shm for one host, hierarchical where some share one, gloo
/// where none do.
std::string cpu_backend(const std::vector<std::string>& hosts);

struct DeviceChoice {
  c10::Device device = c10::Device(c10::kCPU);
  /// "gloo", "nccl", "mpi", "shm" or "hierarchical".
  std::string backend = "gloo";
  /// Why the CPU was taken, in one line, where no one asked for it.
  std::string note;
};

/// Chooses backend and device from what all ranks know, so that all choose the
/// same kind: the GPUs if the program wants or allows them and each rank can
/// have one of its own, else the CPU (see `cpu_backend`). `options` must be
/// complete (see `complete_options`) and equal on all ranks but for the index
/// of a device, which `members` tells. Throws `c10::ValueError` if a GPU was
/// asked for that is not there, or shared memory that there cannot be, and
/// where two ranks would use one that may not be shared.
DeviceChoice choose_device(
    const ProcessGroupOptions& options,
    const std::vector<RankInfo>& members,
    int64_t rank);

} // namespace ddp
