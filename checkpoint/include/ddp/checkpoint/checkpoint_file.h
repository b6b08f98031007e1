#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ddp/internal/export.h>
#include <torch/arg.h>
#include <torch/ordered_dict.h>

#include <functional>
#include <map>
#include <string>

namespace ddp {

/// Options for loading checkpoints.
struct LoadOptions {
  /// Whether each rank reads the file, which all hosts must then have.
  /// Otherwise, only rank 0 reads the file, and sends the tensors one at a
  /// time (`load_checkpoint`: in messages of up to 250 MiB).
  TORCH_ARG(bool, every_rank_reads) = false;

  /// Whether the file is mapped instead of copied to memory. Tensors whose data
  /// begins at a multiple of 8 bytes are then pages of the file, which the
  /// processes of a host share and the system may reclaim. Writes to the
  /// tensors do not reach the file. The file must keep its length while the
  /// tensors exist; otherwise, SIGBUS ends the process. Replacing the file is
  /// safe.
  TORCH_ARG(bool, mmap) = false;

  /// For `load_checkpoint`: the entry with the module's tensors in a file that
  /// contains a whole training run, such as "model"; "" finds the only possible
  /// entry.
  TORCH_ARG(std::string, entry);

  /// For `load_checkpoint`: if false, names that only the module or only the
  /// file has are ignored. Objects in a `.pt` file that this library cannot
  /// read (such as an `argparse.Namespace`) are then omitted from their dicts.
  /// Shapes and dtypes must always fit.
  TORCH_ARG(bool, strict) = true;
};

/// Reads the checkpoint at `path`; its contents determine the format. Not
/// collective.
///
/// The value consists of tensors, `int64_t`, `double`, `bool`, `std::string`,
/// none, lists (`c10::impl::GenericList`), tuples and dicts
/// (`c10::impl::GenericDict` with string or integer keys, in the file's order;
/// of an index, in alphabetical order). Tensors from any device are read to the
/// CPU; in a `.pt` file, tensors that shared memory share it again. The file
/// has one of these formats:
///
/// - `torch.save`, in the zip format of torch 1.6 and later, or `torch::save`:
///   an archive is read as a dict of its entries, and a module as a dict of its
///   parameters, buffers and children. Python's classes and functions are
///   recognized by name, from a list of the names that state dicts need. Any
///   other name is rejected, and nothing is executed.
/// - safetensors: a dict of its tensors, or the value that
///   `write_checkpoint_file` wrote.
/// - A Hugging Face index of several safetensors files
///   (`model.safetensors.index.json`): a dict of all their tensors.
///
/// Sizes are checked before memory is allocated, and checksums while the file
/// is read. Throws `c10::Error` with the file's name and the reason for a
/// truncated, corrupt or malicious file. Apart from tensors, values take at
/// most 128 MiB plus 24 times the size of the file, up to three times as much
/// while a safetensors file is read.
DDP_API c10::IValue read_checkpoint_file(
    const std::string& path,
    const LoadOptions& options = {});

/// Writes `value`, which consists of the types above, to the file at `path`,
/// which is replaced atomically. Not collective.
///
/// The extension selects the format: `.pt` and `.pth`, which Python reads with
/// `torch.load`, or `.safetensors`. In safetensors, tensors are named by their
/// paths, such as "model.conv.weight", and other values are in the metadata, as
/// JSON. A dict of only tensors keeps plain names, and may also be written as
/// `.safetensors.index.json`, with files of at most 5 GB (more for a larger
/// tensor) in the same folder; only one process at a time may write an index.
///
/// Tensors may have any dtype (in safetensors, see `write_safetensors`),
/// strides and device. In a `.pt` file, tensors that share a storage also share
/// it in Python, unless the tensors use less than half of the storage. Each
/// tensor is then written separately, so that a small view does not store a
/// large tensor. Throws `c10::TypeError` for other types and for sparse,
/// quantized and 4-bit tensors, `c10::ValueError` for any other extension,
/// undefined tensors, strings that are not UTF-8 and values nested too deeply,
/// and `c10::Error` if the file cannot be written.
DDP_API void write_checkpoint_file(
    const std::string& path,
    const c10::IValue& value);

/// Reads the whole checkpoint at `path`; throws `c10::Error` if the file is
/// corrupt. Not collective.
DDP_API void verify_checkpoint_file(const std::string& path);

/// Tensors by name, in an order that files preserve; a copy shares the tensors.
using StateDict = torch::OrderedDict<std::string, at::Tensor>;

/// The metadata of a safetensors file, such as {"format": "pt"}.
using SafetensorsMetadata = std::map<std::string, std::string>;

/// The contents of a safetensors file; its tensors are on the CPU.
struct SafetensorsFile {
  StateDict tensors; ///< By name.
  SafetensorsMetadata metadata; ///< From the file's header.
};

/// Writes `tensors` to the file at `path`, which is replaced atomically.
///
/// Tensors may have any shape, strides and device, and the dtypes that the
/// format and LibTorch share: floating point of 64, 32, 16 (also bfloat16) and
/// 8 (not 4) bits, integers, bool, and complex of two 32-bit floats.
/// Throws `c10::TypeError` for any other dtype and for sparse tensors, and
/// `c10::Error` if the file cannot be written. Not collective.
///
/// The format is safetensors (https://github.com/huggingface/safetensors),
/// which Python reads. The metadata entry "ddp.xxh3" has checksums (XXH3 of 64
/// bits) of the header and of each tensor.
DDP_API void write_safetensors(
    const std::string& path,
    const StateDict& tensors,
    const SafetensorsMetadata& metadata = {});

/// Reads the safetensors file at `path`, written by any library, except
/// of 4-bit tensors.
///
/// The header is checked before memory is allocated. In a file that
/// `write_safetensors` wrote, checksums cover every byte. Throws `c10::Error`
/// with the file's name and the expected and actual contents for a truncated,
/// corrupt or malformed file. Not collective.
DDP_API SafetensorsFile read_safetensors(const std::string& path);

} // namespace ddp
