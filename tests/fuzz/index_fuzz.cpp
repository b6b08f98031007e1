#include <ATen/ops/ones.h>
#include <ddp/checkpoint/checkpoint_file.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

// A folder with a file that an index can name.
struct Folder {
  Folder() {
    std::filesystem::create_directory(path);
    ddp::StateDict tensors;
    tensors.insert("a", at::ones({2}));
    ddp::write_safetensors(path + "/s.safetensors", tensors);
  }
  ~Folder() {
    std::filesystem::remove_all(path);
  }

  const std::string path = "/dev/shm/index_fuzz" + std::to_string(getpid());
};

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  static const auto path = folder.path + "/i.safetensors.index.json";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), size);
  try {
    ddp::read_checkpoint_file(path);
  } catch (const c10::Error&) {
  }
  return 0;
}
