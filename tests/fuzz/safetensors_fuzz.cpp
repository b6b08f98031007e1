#include <checkpoint/formats/safetensors_reader.h>
#include <checkpoint/formats/tree_flatten.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const ddp::detail::MemorySource source(data, size);
    const auto file = ddp::detail::read_safetensors(source);
    const auto tree = file.metadata.find("ddp.tree");
    if (tree != file.metadata.end()) {
      ddp::detail::tree_unflatten(tree->second, file.tensors);
    }
  } catch (const c10::Error&) {
  }
  return 0;
}
