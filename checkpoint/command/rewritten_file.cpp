#include <checkpoint/command/file_info.h>
#include <checkpoint/command/leaves.h>
#include <checkpoint/command/rewritten_file.h>
#include <checkpoint/command/text.h>
#include <checkpoint/prepared_file.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/internal/check.h>

#include <iostream>
#include <utility>

namespace ddp::command {

Checkpoint read_checkpoint(const std::string& path, const std::string& entry) {
  auto info = read_file_info(path, /*strict=*/false);
  for (const auto& place : info.omitted) {
    DDP_CHECK_VALUE(
        !entry.empty() && place != entry && place.rfind(entry + ".", 0) != 0,
        "'{}' of '{}' is or contains an object that this library cannot read; "
        "extract other entries with `convert --entry NAME`, or save the file "
        "without this object",
        place,
        path);
  }
  return {
      read_checkpoint_file(path, LoadOptions().mmap(true).strict(false)),
      std::move(info.metadata)};
}

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  detail::prepare_checkpoint_file(
      path, checkpoint.content, nullptr, checkpoint.metadata)();
  const auto extent = extent_of(checkpoint.content);
  std::cout << path << ": " << counted(extent.tensors, "tensor") << ", "
            << size_text(read_file_info(path).bytes) << '\n';
}

} // namespace ddp::command
