#include <checkpoint/command/file_info.h>
#include <checkpoint/command/leaves.h>
#include <checkpoint/command/rewritten_file.h>
#include <checkpoint/command/text.h>
#include <checkpoint/prepared_file.h>
#include <ddp/checkpoint/checkpoint_file.h>

#include <iostream>
#include <utility>

namespace ddp::command {

Checkpoint read_checkpoint(const std::string& path) {
  auto metadata = read_file_info(path).metadata;
  return {
      read_checkpoint_file(path, LoadOptions().mmap(true)),
      std::move(metadata)};
}

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  detail::prepare_checkpoint_file(
      path, checkpoint.content, nullptr, checkpoint.metadata)();
  const auto extent = extent_of(checkpoint.content);
  std::cout << path << ": " << counted(extent.tensors, "tensor") << ", "
            << size_text(read_file_info(path).bytes) << '\n';
}

} // namespace ddp::command
