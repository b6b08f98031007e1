#pragma once

#include <ddp/checkpoint/checkpoint_file.h>

#include <cstdint>

namespace ddp::detail {

/// Hugging Face's limit on one of the files; a larger tensor has one for
/// itself.
constexpr int64_t kMaxShardBytes = 5'000'000'000;

/// Whether the name says that the file is Hugging Face's index of several
/// safetensors files: `<stem>.safetensors.index.json`.
bool is_safetensors_index(const std::string& path);

/// The path in quotes, to begin a message with; for one of the files of an
/// index it says which of how many this is, and that the index reads all.
std::string with_shard_number(const std::string& path);

/// The tensors of the files that the index at `path` names, in its order of
/// names. Throws `c10::Error` if the index is no such JSON, names a file
/// outside its folder, or a tensor that the file does not have.
StateDict read_sharded_safetensors(const std::string& path, bool memory_map);

/// Writes `tensors` to `<stem>-00001-of-0000n.safetensors`, ..., each of at
/// most `max_shard_bytes` of data, then the index, which takes the old one's
/// place at once. Until then the old index has its files: new ones get a name
/// with a number where theirs is taken. At the end the old ones are removed.
void write_sharded_safetensors(
    const std::string& path,
    const StateDict& tensors,
    int64_t max_shard_bytes = kMaxShardBytes);

} // namespace ddp::detail
