#include <ATen/ops/from_blob.h>
#include <checkpoint/command/outline.h>
#include <checkpoint/formats/common/byte_source.h>
#include <checkpoint/formats/common/naming_file.h>
#include <checkpoint/formats/flat_tree.h>
#include <checkpoint/formats/safetensors_header.h>
#include <checkpoint/formats/safetensors_reader.h>
#include <checkpoint/formats/torch_archive.h>
#include <ddp/internal/check.h>

namespace ddp::command {
namespace {

// The bytes at `offset` of the mapped file, which are not read here.
at::Tensor unread_tensor(
    const std::shared_ptr<char>& mapping,
    uint64_t offset,
    at::IntArrayRef shape,
    at::ScalarType dtype) {
  return at::from_blob(
      mapping.get() + offset, shape, [mapping](void* /*data*/) {}, dtype);
}

void read_torch_outline(const detail::FileSource& file, Outline& outline) {
  const detail::TorchArchive archive(file);
  const auto mapping = file.map();
  outline.writer = archive.record("constants.pkl")
      ? "LibTorch's torch::save"
      : "Python's torch.save or ddp";
  outline.content = archive.outline([&](const detail::ZipRecord& record) {
    const auto bytes = static_cast<int64_t>(record.size);
    return unread_tensor(mapping, record.offset, {bytes}, at::kByte).storage();
  });
}

void read_safetensors_outline(
    const detail::FileSource& file,
    Outline& outline) {
  const auto text = detail::read_safetensors_header(file);
  const auto data = sizeof(uint64_t) + text.size();
  auto header = detail::parse_header(text, file.size() - data);
  const auto mapping = file.map();
  StateDict tensors;
  for (const auto& entry : header.entries) {
    tensors.insert(
        entry.name,
        unread_tensor(mapping, data + entry.begin, entry.shape, entry.dtype));
  }
  outline.is_safetensors = true;
  outline.has_digests = !header.digests.empty();
  outline.writer = outline.has_digests ? "ddp" : "";
  outline.metadata = std::move(header.metadata);
  const auto tree = outline.metadata.find(detail::kTreeKey);
  if (tree == outline.metadata.end()) {
    outline.content = detail::tree_of(tensors);
  } else {
    outline.content = detail::unflatten(tree->second, tensors);
    outline.metadata.erase(tree);
  }
}

} // namespace

Outline read_outline(const std::string& path) {
  return detail::naming_file(path, [&] {
    const detail::FileSource file(path);
    DDP_CHECK(file.size() > 0, "it is empty");
    Outline outline;
    outline.bytes = file.size();
    if (detail::is_safetensors(file, path)) {
      read_safetensors_outline(file, outline);
    } else {
      read_torch_outline(file, outline);
    }
    return outline;
  });
}

} // namespace ddp::command
