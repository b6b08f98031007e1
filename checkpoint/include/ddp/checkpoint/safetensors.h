#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/export.h>
#include <torch/ordered_dict.h>

#include <map>
#include <string>

namespace ddp {

/// Tensors by name, in an order that files keep; a copy shares the tensors.
using StateDict = torch::OrderedDict<std::string, at::Tensor>;

/// What a safetensors file says about itself, such as {"format": "pt"}.
using SafetensorsMetadata = std::map<std::string, std::string>;

/// The content of a safetensors file; its tensors are on the CPU.
struct SafetensorsFile {
  StateDict tensors;
  SafetensorsMetadata metadata;
};

/// Writes `tensors` to the file at `path`, which is replaced as a whole or not
/// at all.
///
/// Tensors may have any shape, strides and device; of dtypes those that the
/// format and LibTorch share: floating point of 64, 32, 16 (also bfloat16) and
/// 8 bits (e4m3fn, e5m2), integers, bool, and complex of two 32-bit floats.
/// Throws `c10::TypeError` for another and for sparse tensors, `c10::Error`
/// where the file cannot be written. Not collective.
///
/// The format is that of https://github.com/huggingface/safetensors, so that
/// Python reads the file. In it are digests (XXH3 of 64 bits) of the header and
/// of each tensor, as the metadata entry "ddp.xxh3".
DDP_API void write_safetensors(
    const std::string& path,
    const StateDict& tensors,
    const SafetensorsMetadata& metadata = {});

/// Reads the safetensors file at `path`, written by this library or another.
///
/// The header is checked before memory is allocated, and in a file that
/// `write_safetensors` wrote every byte by digests: a truncated, damaged or
/// malformed file throws `c10::Error` that names it, what was seen and what was
/// expected. Not collective.
DDP_API SafetensorsFile read_safetensors(const std::string& path);

/// The same, but the file is mapped and not copied: its tensors (those whose
/// data begins at a multiple of 8 bytes) are pages of the file, which processes
/// on one host share and the system may take back. What is written to them does
/// not reach the file, which has to keep its length as long as they live, or
/// the process ends by SIGBUS; that another file takes its place does no harm.
DDP_API SafetensorsFile map_safetensors(const std::string& path);

} // namespace ddp
