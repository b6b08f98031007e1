# Finds MPI and sets DDP_MPI: whether ddp's library for it is built.
option(DDP_WITH_MPI "Build the MPI backend where an MPI is installed" ON)

set(DDP_MPI OFF)
set(_ddp_mpi_note "")
if(NOT DDP_WITH_MPI)
  set(_ddp_mpi_note "DDP_WITH_MPI is off")
else()
  include(CheckLanguage)
  check_language(C) # FindMPI asks a C compiler about MPI's C interface
  if(CMAKE_C_COMPILER)
    enable_language(C)
    find_package(MPI 3.0 QUIET COMPONENTS C)
  endif()
  if(MPI_C_FOUND)
    set(DDP_MPI ON)
  else()
    set(_ddp_mpi_note "no MPI 3 was found (Debian: apt-get install libopenmpi-dev openmpi-bin)")
  endif()
endif()

if(DDP_MPI)
  # Where the C compiler is MPI's wrapper, there are no libraries to name.
  set(_ddp_mpi_library ${MPI_C_LIBRARIES} ${MPI_C_COMPILER})
  list(GET _ddp_mpi_library 0 _ddp_mpi_library)
  string(APPEND DDP_BACKENDS ", mpi (${_ddp_mpi_library})")
else()
  string(APPEND DDP_BACKENDS "; no mpi: ${_ddp_mpi_note}")
endif()
