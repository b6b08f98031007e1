// Replaces ddp_bench_gpu in a build without CUDA.

#include <cstdio>

int main() {
  std::fprintf(stderr, "ddp_bench_gpu: this build has no CUDA\n");
  return 1;
}
