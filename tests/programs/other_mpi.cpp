// Preloaded into a process, stands for an MPI of another kind than ddp's that
// the program has initialised.

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
