#include <checkpoint/command/file_info.h>
#include <checkpoint/formats/common/byte_source.h>
#include <checkpoint/formats/common/naming_file.h>
#include <checkpoint/formats/safetensors_index.h>
#include <checkpoint/formats/safetensors_reader.h>
#include <checkpoint/formats/torch_archive.h>
#include <checkpoint/formats/tree_flatten.h>
#include <ddp/checkpoint/training_state.h>
#include <ddp/internal/check.h>

namespace ddp::command {
namespace {

FileInfo read_index_info(const std::string& path) {
  FileInfo info;
  info.is_safetensors = true;
  info.has_checksums = true;
  info.bytes = detail::FileSource(path).size();
  const auto read_shard = [&](const std::string& shard) {
    DDP_CHECK(
        !detail::is_safetensors_index(shard),
        "it names '{}', but an index names no other index",
        shard);
    const auto part = read_file_info(shard);
    info.has_checksums = info.has_checksums && part.has_checksums;
    info.bytes += part.bytes;
    info.metadata.insert(part.metadata.begin(), part.metadata.end());
    return detail::to_state_dict(part.content);
  };
  info.content = detail::to_generic_dict(
      detail::read_sharded_safetensors(path, read_shard));
  info.writer = info.has_checksums ? "ddp" : "";
  return info;
}

} // namespace

FileInfo read_file_info(const std::string& path, bool strict) {
  return detail::naming_file(path, [&] {
    if (detail::is_safetensors_index(path)) {
      return read_index_info(path);
    }
    const detail::FileSource file(path);
    DDP_CHECK(file.size() > 0, "it is empty");
    const detail::CheckedSource source(file);
    FileInfo info;
    info.bytes = file.size();
    info.is_safetensors = detail::is_safetensors(file, path);
    if (info.is_safetensors) {
      auto content = detail::read_safetensors(source, /*verify=*/false);
      info.has_checksums =
          !detail::read_safetensors_header(file).checksums.empty();
      info.writer = info.has_checksums ? "ddp" : "";
      info.content = detail::take_value(content);
      info.metadata = std::move(content.metadata);
    } else {
      const detail::TorchArchive archive(source);
      info.writer = archive.record("constants.pkl")
          ? "LibTorch's torch::save"
          : "Python's torch.save or ddp";
      info.has_checksums = archive.has_checksums();
      info.content = archive.value(strict, /*verify=*/false, &info.omitted);
    }
    return info;
  });
}

} // namespace ddp::command
