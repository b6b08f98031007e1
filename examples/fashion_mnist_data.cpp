#include "fashion_mnist_data.h"

#include <torch/types.h>
#include <zlib.h>

#include <memory>
#include <vector>

namespace {

constexpr double kMean = 0.2860;
constexpr double kDeviation = 0.3530;

using File = std::unique_ptr<gzFile_s, decltype(&gzclose)>;

void read(
    const File& file,
    const std::string& path,
    void* target,
    int64_t bytes) {
  TORCH_CHECK(
      gzread(file.get(), target, static_cast<unsigned>(bytes)) == bytes,
      path,
      " ends too early or is corrupt: unpack or download it again");
}

int64_t read_integer(const File& file, const std::string& path) {
  unsigned char b[4];
  read(file, path, b, sizeof(b));
  return (int64_t{b[0]} << 24) | (b[1] << 16) | (b[2] << 8) | b[3];
}

/// An idx file of bytes: magic number 0x800 + dimensions, sizes, data.
torch::Tensor read_idx(const std::string& path, int64_t dimensions) {
  const File file(gzopen(path.c_str(), "rb"), &gzclose);
  TORCH_CHECK(
      file,
      path,
      " cannot be opened. On Debian `apt-get install dataset-fashion-mnist` "
      "puts the data into /usr/share/datasets/fashion-mnist");
  const auto magic = read_integer(file, path);
  TORCH_CHECK(
      magic == 0x800 + dimensions,
      path,
      " is not an idx file of ",
      dimensions,
      " dimensions: it begins with ",
      magic);
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < dimensions; ++i) {
    sizes.push_back(read_integer(file, path));
  }
  auto data = torch::empty(sizes, torch::kByte);
  read(file, path, data.data_ptr(), data.numel());
  return data;
}

} // namespace

FashionMnist::FashionMnist(const std::string& folder, Part part) {
  const auto prefix = folder + (part == Part::kTrain ? "/train" : "/t10k");
  const auto pixels = read_idx(prefix + "-images-idx3-ubyte.gz", 3);
  images_ = pixels.unsqueeze(1).to(torch::kFloat).div_(255);
  images_.sub_(kMean).div_(kDeviation);
  labels_ = read_idx(prefix + "-labels-idx1-ubyte.gz", 1).to(torch::kLong);
  TORCH_CHECK(
      images_.size(0) == labels_.size(0),
      folder,
      " has ",
      images_.size(0),
      " images but ",
      labels_.size(0),
      " labels");
}

torch::data::Example<> FashionMnist::get(size_t index) {
  const auto i = static_cast<int64_t>(index);
  return {images_[i], labels_[i]};
}

torch::optional<size_t> FashionMnist::size() const {
  return images_.size(0);
}

const torch::Tensor& FashionMnist::images() const {
  return images_;
}

const torch::Tensor& FashionMnist::labels() const {
  return labels_;
}
