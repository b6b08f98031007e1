#include <checkpoint/command/leaves.h>
#include <checkpoint/command/outline.h>
#include <checkpoint/command/rewritten_file.h>
#include <checkpoint/command/text.h>
#include <checkpoint/formats/flat_tree.h>
#include <ddp/checkpoint/checkpoint_file.h>

#include <filesystem>
#include <iostream>
#include <utility>

namespace ddp::command {
namespace {

void write_safetensors_checkpoint(
    const std::string& path,
    const Checkpoint& checkpoint) {
  const auto flat = detail::flatten(checkpoint.content);
  auto metadata = checkpoint.metadata;
  metadata.emplace("format", "pt");
  if (!flat.structure.empty()) {
    metadata[detail::kTreeKey] = flat.structure;
  }
  write_safetensors(path, flat.tensors, metadata);
}

} // namespace

Checkpoint read_checkpoint(const std::string& path) {
  auto metadata = read_outline(path).metadata;
  return {
      read_checkpoint_file(path, LoadOptions().memory_map(true)),
      std::move(metadata)};
}

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  if (std::filesystem::path(path).extension() == ".safetensors") {
    write_safetensors_checkpoint(path, checkpoint);
  } else {
    write_checkpoint_file(path, checkpoint.content);
  }
  const auto extent = extent_of(checkpoint.content);
  std::cout << path << ": " << counted(extent.tensors, "tensor") << ", "
            << size_text(std::filesystem::file_size(path)) << '\n';
}

} // namespace ddp::command
