#include <checkpoint/command/outline.h>
#include <checkpoint/formats/common/byte_source.h>
#include <checkpoint/formats/common/naming_file.h>
#include <checkpoint/formats/flat_tree.h>
#include <checkpoint/formats/safetensors_reader.h>
#include <checkpoint/formats/torch_archive.h>
#include <ddp/internal/check.h>

namespace ddp::command {

Outline read_outline(const std::string& path) {
  return detail::naming_file(path, [&] {
    const detail::FileSource file(path);
    DDP_CHECK(file.size() > 0, "it is empty");
    const detail::MappedSource mapped(file);
    Outline outline;
    outline.bytes = file.size();
    outline.is_safetensors = detail::is_safetensors(file, path);
    if (outline.is_safetensors) {
      auto content = detail::read_safetensors(mapped, /*verify=*/false);
      outline.has_digests =
          !detail::read_safetensors_header(file).digests.empty();
      outline.writer = outline.has_digests ? "ddp" : "";
      outline.content = detail::take_value(content);
      outline.metadata = std::move(content.metadata);
    } else {
      const detail::TorchArchive archive(mapped);
      outline.writer = archive.record("constants.pkl")
          ? "LibTorch's torch::save"
          : "Python's torch.save or ddp";
      outline.content = archive.value(/*strict=*/true, /*verify=*/false);
    }
    return outline;
  });
}

} // namespace ddp::command
