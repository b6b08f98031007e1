#pragma once

// LibTorch and Catch2 both define CHECK and friends: LibTorch has to come
// first, and its macro has to go.
#include <torch/torch.h>
#undef CHECK
#include <tests/support/catch_plain.h>
