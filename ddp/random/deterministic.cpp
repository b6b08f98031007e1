#include <ddp/random.h>

#include <ATen/Context.h>

#include <cstdlib>

namespace ddp {

void use_deterministic_algorithms(bool deterministic) {
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  context.setDeterministicCuDNN(deterministic);
  context.setBenchmarkCuDNN(false);
  if (deterministic) {
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  }
}

} // namespace ddp
