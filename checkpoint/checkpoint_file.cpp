#include <checkpoint/formats/common/byte_source.h>
#include <checkpoint/formats/common/naming_file.h>
#include <checkpoint/formats/pickle/pickle_writer.h>
#include <checkpoint/formats/safetensors_header.h>
#include <checkpoint/formats/safetensors_index.h>
#include <checkpoint/formats/safetensors_reader.h>
#include <checkpoint/formats/torch_archive.h>
#include <checkpoint/formats/tree_flatten.h>
#include <checkpoint/formats/values.h>
#include <checkpoint/prepared_file.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/internal/check.h>
#include <ddp/support/snapshot_memory.h>

#include <filesystem>

namespace ddp {
namespace {

bool writes_safetensors(const std::string& path) {
  return std::filesystem::path(path).extension() == ".safetensors";
}

c10::IValue read(
    const detail::ByteSource& file,
    const std::string& path,
    bool strict,
    std::vector<std::string>* omitted) {
  if (!detail::is_safetensors(file, path)) {
    return detail::TorchArchive(file).value(strict, /*verify=*/true, omitted);
  }
  auto content = detail::read_safetensors(file);
  return detail::take_value(content);
}

c10::IValue read(
    const std::string& path,
    detail::FileAccess access,
    bool strict,
    std::vector<std::string>* omitted = nullptr) {
  return detail::naming_file(path, [&] {
    if (detail::is_safetensors_index(path)) {
      return detail::to_generic_dict(
          detail::read_sharded_safetensors(path, [&](const std::string& shard) {
            return detail::read_safetensors(shard, access).tensors;
          }));
    }
    const detail::FileSource file(path);
    return detail::read_file(file, access, [&](const auto& source) {
      return read(source, path, strict, omitted);
    });
  });
}

} // namespace

c10::IValue read_checkpoint_file(
    const std::string& path,
    const LoadOptions& options) {
  return detail::read_checkpoint(path, options, nullptr);
}

c10::IValue detail::read_checkpoint(
    const std::string& path,
    const LoadOptions& options,
    std::vector<std::string>* omitted) {
  const auto access = options.mmap() ? FileAccess::kMap : FileAccess::kCopy;
  return read(path, access, options.strict(), omitted);
}

void write_checkpoint_file(const std::string& path, const c10::IValue& value) {
  detail::prepare_checkpoint_file(path, value)();
}

void verify_checkpoint_file(const std::string& path) {
  read(path, detail::FileAccess::kCheck, /*strict=*/false);
}

void detail::check_extension(const std::string& path) {
  const auto extension = std::filesystem::path(path).extension();
  DDP_CHECK_VALUE(
      extension == ".pt" || extension == ".pth" || writes_safetensors(path) ||
          is_safetensors_index(path),
      "checkpoint '{}': unknown extension; use .pt, .pth or .safetensors",
      path);
}

std::function<void()> detail::prepare_checkpoint_file(
    const std::string& path,
    const c10::IValue& value,
    SnapshotMemory* memory,
    SafetensorsMetadata metadata,
    const std::function<void()>& check) {
  const bool sharded = is_safetensors_index(path);
  check_extension(path);
  check_writable(value);
  if (sharded || writes_safetensors(path)) {
    auto flat = tree_flatten(value);
    DDP_CHECK_VALUE(
        !sharded || flat.structure.empty(),
        "checkpoint '{}': an index of several files can contain only a dict of "
        "tensors: write this value to one file, .safetensors or .pt",
        path);
    for (const auto& tensor : flat.tensors) {
      safetensors_dtype(tensor.value().scalar_type(), tensor.key());
    }
    metadata.emplace("format", "pt");
    if (!flat.structure.empty()) {
      metadata[kTreeKey] = flat.structure;
    }
    if (memory != nullptr) {
      for (auto& tensor : flat.tensors) {
        tensor.value() = memory->copy(tensor.value());
      }
    }
    return [sharded, path, metadata, check, tensors = std::move(flat.tensors)] {
      if (sharded) {
        write_sharded_safetensors(path, tensors, kMaxShardBytes, metadata);
      } else {
        write_safetensors(path, tensors, metadata, check);
      }
    };
  }
  auto pickled = write_pickle(value);
  if (memory != nullptr) {
    for (auto& storage : pickled.storages) {
      storage = memory->copy(storage);
    }
  }
  return [path, check, pickled = std::move(pickled)] {
    write_torch_archive(path, pickled, check);
  };
}

} // namespace ddp
