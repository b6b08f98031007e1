#pragma once

#include <ddp/process_group_options.h>
#include <ddp/rendezvous/rendezvous.h>

namespace ddp {

/// A rank's position among the ranks of its host.
struct LocalPosition {
  int64_t rank = 0;
  int64_t size = 1;
};

/// Finds a rank's position by comparing hosts. A local rank from the launcher
/// takes precedence, since containers may make one host look like several, or
/// several hosts like one.
LocalPosition local_position(
    const std::vector<RankInfo>& members,
    int64_t rank);

/// The backend for CPU tensors if the ranks of each of these hosts can share
/// memory: shm for one host, hierarchical if some ranks share a host, otherwise
/// gloo.
std::string cpu_backend(const std::vector<std::string>& hosts);

struct DeviceChoice {
  c10::Device device = c10::Device(c10::kCPU);
  /// "gloo", "nccl", "mpi", "shm" or "hierarchical".
  std::string backend = "gloo";
  /// A line that explains why the CPU was chosen, if the program did not
  /// request the CPU.
  std::string note;
};

/// Chooses the backend and the device from the data of all ranks, so that all
/// ranks choose the same kind. Ranks use GPUs if the program requests or allows
/// GPUs and each rank can have a separate GPU; otherwise they use the CPU (see
/// `cpu_backend`). `options` must be complete (see `complete_options`) and
/// equal on all ranks, except the index of a device, which is in `members`.
/// Throws `c10::ValueError`, on all ranks, if a requested GPU or shared memory
/// is not available on any rank, or if two ranks would use the same GPU without
/// permission to share it.
DeviceChoice choose_device(
    const ProcessGroupOptions& options,
    const std::vector<RankInfo>& members,
    int64_t rank);

} // namespace ddp
