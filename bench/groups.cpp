#include <bench/groups.h>

#include <c10/util/Exception.h>

#include <cstdio>
#include <cstdlib>

#include <sched.h>

namespace bench {
namespace {

/// From the variables of ddprun, Open MPI or MPICH: it is needed before a group
/// exists.
int64_t rank_on_host() {
  for (const char* name :
       {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"}) {
    if (const char* const value = std::getenv(name)) {
      return std::atoi(value);
    }
  }
  return 0;
}

} // namespace

void pin_to_one_cpu() {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) {
    return;
  }
  auto place = rank_on_host() % CPU_COUNT(&usable);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &usable) && place-- == 0) {
      cpu_set_t own;
      CPU_ZERO(&own);
      CPU_SET(cpu, &own);
      sched_setaffinity(0, sizeof own, &own);
    }
  }
}

std::optional<ddp::ProcessGroup> find_group(const std::string& backend) {
  try {
    return ddp::init_process_group(
        ddp::ProcessGroupOptions().backend(backend).device(at::kCPU));
  } catch (const c10::ValueError& error) {
    if (rank_on_host() == 0) {
      std::printf("no %s: %s\n", backend.c_str(), error.msg().c_str());
    }
    return std::nullopt;
  }
}

} // namespace bench
