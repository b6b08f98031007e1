// Preloaded into a process, stands for another MPI implementation than ddp's,
// initialised by the program.

extern "C" int MPI_Init(int* /*argc*/, char*** /*argv*/) {
  return 0;
}

extern "C" int PMPI_Init(int* /*argc*/, char*** /*argv*/) {
  return 0;
}

extern "C" int MPI_Initialized(int* flag) {
  *flag = 1;
  return 0;
}

extern "C" int MPI_Finalized(int* flag) {
  *flag = 0;
  return 0;
}
