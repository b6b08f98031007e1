#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

#include <cstdint>

namespace ddp::detail {

/// Hugging Face's limit for the size of a file; a larger tensor gets a separate
/// file.
constexpr int64_t kMaxShardBytes = 5'000'000'000;

/// Whether the file has the name of Hugging Face's index of several safetensors
/// files: `<stem>.safetensors.index.json`.
bool is_safetensors_index(const std::string& path);

/// The path in quotes, for the beginning of a message. For a file of an index,
/// also its number among the files, and the hint that loading the index reads
/// all the files.
std::string with_shard_number(const std::string& path);

/// The tensors of the files that the index at `path` names, in the order of the
/// index; `read_shard` reads the file at a path. Throws `c10::Error` if the
/// index is not valid, or names a file outside its folder or a tensor that the
/// file does not have.
StateDict read_sharded_safetensors(
    const std::string& path,
    const std::function<StateDict(const std::string&)>& read_shard);

/// Writes `tensors` to `<stem>-00001-of-0000n.safetensors`, ..., each of at
/// most `max_shard_bytes` of data, then the index, which replaces the old index
/// atomically. Until then, the files of the old index are kept: if a file with
/// the name of a new file exists, the new file's name gets a number. At the
/// end, the old files are removed. Each file gets the `metadata`.
void write_sharded_safetensors(
    const std::string& path,
    const StateDict& tensors,
    int64_t max_shard_bytes = kMaxShardBytes,
    const SafetensorsMetadata& metadata = {{"format", "pt"}});

} // namespace ddp::detail
