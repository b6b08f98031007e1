// make_corpus FOLDER: writes small files into FOLDER/torch_file,
// FOLDER/safetensors and FOLDER/pickle, for the fuzzers to begin with.

#include <ATen/ATen.h>
#include <checkpoint/formats/torch_archive.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/support/containers.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

using c10::IValue;
using ddp::detail::new_dict;

std::vector<IValue> values() {
  const auto tensor = at::arange(6, at::kFloat).reshape({2, 3});
  auto list = ddp::detail::new_list();
  for (const auto& item : std::vector<IValue>{1, 0.5, true, IValue(), "a"}) {
    list.push_back(item);
  }
  auto model = new_dict();
  model.insert("weight", tensor);
  model.insert("turned", tensor.t());
  model.insert("half", at::ones({3}, at::kHalf));
  auto training = new_dict();
  training.insert("model", model);
  training.insert("step", int64_t{1} << 40);
  training.insert(0, c10::ivalue::Tuple::create({list, tensor}));
  return {model, training, list, tensor};
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Removes the checksums, which other programs' files lack.
void write_foreign(const std::string& from, const std::string& to) {
  auto bytes = read(from);
  const auto at = bytes.find("ddp.xxh3");
  if (at != std::string::npos) {
    bytes[at] = 'D';
    write(to, bytes);
  }
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    return 2;
  }
  const std::string folder = argv[1];
  for (const auto* name : {"torch_file", "safetensors", "pickle"}) {
    std::filesystem::create_directories(folder + "/" + name);
  }
  int i = 0;
  for (const auto& value : values()) {
    const auto name = "/" + std::to_string(i++);
    const auto zip = folder + "/torch_file" + name;
    ddp::write_checkpoint_file(zip + ".pt", value);
    const auto theirs = torch::jit::pickle_save(value);
    write(zip + ".libtorch", {theirs.begin(), theirs.end()});
    const auto tensors = folder + "/safetensors" + name;
    ddp::write_checkpoint_file(tensors + ".safetensors", value);
    write_foreign(tensors + ".safetensors", tensors + ".foreign");
    for (const auto* writer : {".pt", ".libtorch"}) {
      const auto bytes = read(zip + writer);
      const ddp::detail::MemorySource source(bytes.data(), bytes.size());
      const ddp::detail::TorchArchive archive(source);
      write(
          folder + "/pickle" + name + writer,
          archive.record("data.pkl").value());
    }
  }
  return 0;
}
