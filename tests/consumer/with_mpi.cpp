#include <mpi.h>

#include <ddp/process_group.h>

ddp::ProcessGroup group_of(MPI_Comm communicator) {
  return ddp::ProcessGroup::from_mpi(communicator);
}
