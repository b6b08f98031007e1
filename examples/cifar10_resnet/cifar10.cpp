#include "cifar10.h"

#include <ddp/seed.h>
#include <torch/types.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

namespace fs = std::filesystem;

namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kSide = 32;
constexpr int64_t kPixels = kChannels * kSide * kSide;
constexpr int64_t kRecord = 1 + kPixels; // a label, then red, green and blue
constexpr int64_t kClasses = 10;
constexpr int kShift = 2;

const std::string kFolder = "cifar-10-batches-bin"; // as the archive has it
const std::string kTestFile = "test_batch.bin";

std::vector<std::string> train_files() {
  std::vector<std::string> names;
  for (int i = 1; i <= 5; ++i) {
    names.push_back("data_batch_" + std::to_string(i) + ".bin");
  }
  return names;
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

/// What somebody sees who looks into the folder.
std::string contents(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    return "there is no such folder";
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  constexpr size_t kShown = 12;
  const auto more = names.size() - std::min(names.size(), kShown);
  std::sort(names.begin(), names.end());
  names.resize(names.size() - more);
  return names.empty() ? "it is empty"
                       : "it has " + list(names) +
          (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

/// Where the files are, all of them.
fs::path find(const fs::path& given) {
  const auto inner = given / kFolder;
  const auto folder = fs::is_directory(inner) ? inner : given;
  auto names = train_files();
  names.push_back(kTestFile);
  std::vector<std::string> missing;
  for (const auto& name : names) {
    if (!fs::is_regular_file(folder / name)) {
      missing.push_back(name);
    }
  }
  TORCH_CHECK(
      missing.empty(),
      "CIFAR-10 in its binary format was looked for in '",
      folder.string(),
      "': ",
      contents(folder),
      ". Expected are data_batch_1.bin to data_batch_5.bin and "
      "test_batch.bin, ",
      10000 * kRecord,
      " bytes each; missing: ",
      list(missing),
      ". Get the binary version (cifar-10-binary.tar.gz) from "
      "https://www.cs.toronto.edu/~kriz/cifar.html and unpack it in '",
      given.string(),
      "', or name its folder with --data");
  return folder;
}

/// The records of a file, [N, 3073].
torch::Tensor read(const fs::path& path) {
  const auto bytes = static_cast<int64_t>(fs::file_size(path));
  TORCH_CHECK(
      bytes > 0 && bytes % kRecord == 0,
      path.string(),
      " is incomplete or damaged: it has ",
      bytes,
      " bytes, expected whole records of ",
      kRecord,
      " (",
      10000 * kRecord,
      " bytes for all of CIFAR-10's); unpack it again");
  auto records = torch::empty({bytes / kRecord, kRecord}, torch::kByte);
  std::ifstream file(path, std::ios::binary);
  file.read(static_cast<char*>(records.data_ptr()), bytes);
  TORCH_CHECK(file.gcount() == bytes, path.string(), " cannot be read");
  const auto labels = records.select(1, 0);
  const auto worst = labels.argmax().item<int64_t>();
  TORCH_CHECK(
      labels[worst].item<int64_t>() < kClasses,
      path.string(),
      " is damaged, or no file of CIFAR-10: record ",
      worst,
      " has the label ",
      labels[worst].item<int64_t>(),
      ", expected 0 to 9");
  return records;
}

/// How an image is changed.
struct Change {
  int64_t down = 0;
  int64_t right = 0;
  bool mirrored = false;
};

Change draw(uint64_t seed) {
  std::mt19937_64 random(seed);
  // Not a distribution of the standard library's, which differ between them.
  const auto below = [&](uint64_t n) {
    return static_cast<int64_t>(random() % n);
  };
  Change change;
  change.down = below(2 * kShift + 1) - kShift;
  change.right = below(2 * kShift + 1) - kShift;
  change.mirrored = below(2) == 1;
  return change;
}

/// Bytes to floats from -1 to 1; `change` is made meanwhile.
void convert(const uint8_t* from, float* to, const Change& change) {
  for (int64_t row = 0; row < kChannels * kSide; ++row) {
    const auto y = row % kSide - change.down;
    for (int64_t column = 0; column < kSide; ++column) {
      const auto shown = change.mirrored ? kSide - 1 - column : column;
      const auto x = shown - change.right;
      const bool inside = 0 <= y && y < kSide && 0 <= x && x < kSide;
      const auto at = (row - change.down) * kSide + x;
      const float value = inside ? from[at] : 0;
      *to++ = value / 127.5F - 1;
    }
  }
}

} // namespace

Cifar10::Cifar10(const std::string& folder, Part part)
    : epoch_(std::make_shared<std::atomic<int64_t>>(0)) {
  const auto place = find(folder);
  std::vector<torch::Tensor> records;
  for (const auto& name :
       part == Part::kTest ? std::vector{kTestFile} : train_files()) {
    records.push_back(read(place / name));
  }
  const auto all = torch::cat(records);
  labels_ = all.select(1, 0).to(torch::kLong);
  images_ = all.slice(1, 1).contiguous().view({-1, kChannels, kSide, kSide});
}

void Cifar10::augment(uint64_t seed) {
  seed_ = seed;
}

void Cifar10::set_epoch(int64_t epoch) {
  *epoch_ = epoch;
}

torch::data::Example<> Cifar10::get(size_t index) {
  const auto i = static_cast<int64_t>(index);
  auto image = torch::empty({kChannels, kSide, kSide});
  convert(
      images_.const_data_ptr<uint8_t>() + i * kPixels,
      image.data_ptr<float>(),
      seed_ ? draw(ddp::sample_seed(*seed_, *epoch_, index)) : Change());
  return {image, labels_[i]};
}

torch::optional<size_t> Cifar10::size() const {
  return images_.size(0);
}

const torch::Tensor& Cifar10::images() const {
  return images_;
}

const torch::Tensor& Cifar10::labels() const {
  return labels_;
}
