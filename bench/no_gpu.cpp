// Replaces ddp_bench_gpu in a build without CUDA.

#include <cstdio>

int main() {
  std::printf("skipped: built without CUDA\n");
  return 0;
}
