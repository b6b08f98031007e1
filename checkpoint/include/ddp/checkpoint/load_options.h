#pragma once

#include <torch/arg.h>

#include <string>

namespace ddp {

/// How checkpoints are loaded.
struct LoadOptions {
  /// Each rank reads the file by itself, which all hosts have to have then;
  /// else rank 0 alone reads, and sends the others tensor after tensor.
  TORCH_ARG(bool, every_rank_reads) = false;

  /// The file is mapped and not copied to memory (see `map_safetensors`): with
  /// `every_rank_reads` the ranks of a host share one copy.
  TORCH_ARG(bool, memory_map) = false;

  /// For `load_checkpoint`: where the module's tensors are in a file that has a
  /// whole training, such as "model"; "" finds the only place that they can be.
  TORCH_ARG(std::string, entry);

  /// False, for `load_checkpoint`: names that only the module or only the file
  /// has are left alone, and objects of a `.pt` file that this library does not
  /// read (as the `argparse.Namespace` beside a model) are left out of the
  /// dicts that they are in. Shapes and dtypes must fit in any case.
  TORCH_ARG(bool, strict) = true;
};

} // namespace ddp
