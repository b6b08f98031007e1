#pragma once

#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/internal/export.h>
#include <ddp/process_group.h>

#include <string>
#include <vector>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ddp {

/// Writes the parameters and buffers of `module` to the file at `path`.
///
/// Rank 0 writes tensors of any device. The file is replaced atomically. Names
/// are those of Python's `state_dict()`; a wrapper (`DistributedDataParallel`)
/// and the plain module produce the same file. The extension selects the
/// format. Python reads `.safetensors` with `safetensors.torch.load_file`, and
/// `.pt` and `.pth` with `torch.load`.
///
/// Without a group, each calling process writes the file.
///
/// Collective: every rank returns when the file is on the disk, or throws
/// `c10::Error` with rank 0's reason. The write must finish within the group's
/// timeout. Throws `c10::ValueError` for any other extension. Warns if ranks
/// pass different paths, and uses rank 0's path.
DDP_API void save_checkpoint(
    const std::string& path,
    const torch::nn::Module& module,
    const ProcessGroup& group = {});

/// The names that `load_checkpoint` ignored; empty unless
/// `LoadOptions().strict(false)`. Source: the result of Python's
/// `load_state_dict`.
struct IncompatibleKeys {
  /// Names in the module that are not in the file.
  std::vector<std::string> missing_keys;
  /// Names in the file that are not in the module.
  std::vector<std::string> unexpected_keys;
};

/// Loads `module`, wrapped or plain, from a file written by `save_checkpoint`,
/// `TrainingState::save` or Python's `torch.save`.
///
/// A file that contains a whole training run, such as Python's
/// `torch.save({"model": model.state_dict(), "epoch": 3}, path)`, has the
/// module's tensors in a separate entry, which `options` can name. By default,
/// only rank 0 reads the file, and sends the values to the other ranks, whose
/// hosts do not need the file. The prefix `module.` of Python's
/// DistributedDataParallel is ignored in names. Values are converted to a
/// parameter's or buffer's dtype if that dtype is of the same kind or wider
/// (floating point to integer only for a single whole number). Parameters and
/// buffers stay on their devices. As in Python, a file may lack batch-norm's
/// `num_batches_tracked`, which then does not change. Of a tensor with several
/// names, such as tied weights, a file needs only one name.
///
/// Collective: the module must be the same on all ranks (see
/// `verify_same_model`). Every rank throws the same `c10::Error` if names are
/// missing or unexpected, if shapes differ (the message lists all), or if ranks
/// pass different paths (unless every rank reads the file). The modules are
/// then unchanged. With `strict(false)`, the function returns the missing and
/// unexpected names, and throws if the module and the file have no name in
/// common. Tensors that the file lacks get rank 0's values, unless every rank
/// reads the file.
DDP_API IncompatibleKeys load_checkpoint(
    const std::string& path,
    torch::nn::Module& module,
    const ProcessGroup& group = {},
    const LoadOptions& options = {});

} // namespace ddp
