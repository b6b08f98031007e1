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
/// Rank 0 alone writes, from whatever device; the file is replaced as a whole
/// or, whatever happens, not at all. Its names are those of Python's
/// `state_dict()`; a wrapper (`DistributedDataParallel`) and the plain module
/// give the same file. The format goes by the extension: `.safetensors`, which
/// Python reads with `safetensors.torch.load_file`, or `.pt` and `.pth`, which
/// it reads with `torch.load`.
///
/// Without a group the calling process alone writes; if there are several, each
/// would write the same file.
///
/// Collective: every rank returns when the file is on the disk, or throws
/// `c10::Error` with rank 0's reason. The write has to end within the group's
/// timeout. Throws `c10::ValueError` for another extension, and warns if ranks
/// give different paths, of which rank 0's counts.
DDP_API void save_checkpoint(
    const std::string& path,
    const torch::nn::Module& module,
    const ProcessGroup& group = {});

/// What `load_checkpoint` left alone, by name; empty unless
/// `LoadOptions().strict(false)`. Source: what Python's `load_state_dict`
/// returns.
struct IncompatibleKeys {
  /// Of the module; the file does not have them.
  std::vector<std::string> missing_keys;
  /// Of the file; the module does not have them.
  std::vector<std::string> unexpected_keys;
};

/// Reads a file that `save_checkpoint`, `TrainingState::save`, or Python wrote
/// into `module`, wrapped or plain.
///
/// A file of a whole training, such as Python's `torch.save({"model":
/// model.state_dict(), "epoch": 3}, path)`, has the module's tensors in an
/// entry of their own, which `options` can name. Rank 0 alone reads and sends
/// the values to the others, so that only its host needs the file, unless
/// `options` say otherwise. Names are matched up to the `module.` that Python's
/// DistributedDataParallel puts in front of them. Values are converted to the
/// dtype of the parameter or buffer if that is of the same kind or a wider one
/// (floating point to integer only for a single whole number), and stay on its
/// device.
///
/// Collective: the module has to be the same on all ranks (see
/// `verify_same_model`). Every rank throws the same `c10::Error`, with all
/// names that are missing, unexpected, or of another shape, or if ranks gave
/// different paths, of which rank 0 would read its own, and then no module has
/// changed. With `strict(false)`, which returns the first two, it throws if the
/// module and the file have no name in common; what the file does not have is
/// rank 0's afterwards, unless every rank reads.
DDP_API IncompatibleKeys load_checkpoint(
    const std::string& path,
    torch::nn::Module& module,
    const ProcessGroup& group = {},
    const LoadOptions& options = {});

} // namespace ddp
