#pragma once

#include <ddp/export.h>

namespace ddp {

/// Makes LibTorch compute the same bits in each run, or throw where it has no
/// such algorithm: `torch.use_deterministic_algorithms(True)`, cuDNN's
/// deterministic algorithms without trying which is fastest, and the workspace
/// setting that cuBLAS needs (CUBLAS_WORKSPACE_CONFIG=:4096:8, unless it is
/// set). To be called before CUDA is used; not collective, but to be called on
/// all ranks. `deterministic` false turns the first two off again.
DDP_API void use_deterministic_algorithms(bool deterministic = true);

} // namespace ddp
