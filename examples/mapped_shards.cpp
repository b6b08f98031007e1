#include "mapped_shards.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <system_error>

namespace {

constexpr char kMagic[] = "shard01\n";
constexpr size_t kMaxFeatures = size_t(1) << 24;

struct Header {
  char magic[8];
  uint64_t features;
  uint64_t records;
};

size_t record_bytes(size_t features) {
  return features * sizeof(float) + sizeof(int32_t);
}

std::string last_error() {
  return std::generic_category().message(errno);
}

Header read_header(const std::string& path) {
  Header header{};
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file, "cannot open '", path, "': ", last_error());
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  TORCH_CHECK(
      file && std::memcmp(header.magic, kMagic, sizeof(header.magic)) == 0,
      "'",
      path,
      "' is no shard: it does not begin with 'shard01' and two sizes");
  TORCH_CHECK(
      0 < header.features && header.features <= kMaxFeatures,
      "'",
      path,
      "' is damaged: its records would have ",
      header.features,
      " features");
  const auto bytes = std::filesystem::file_size(path) - sizeof(Header);
  const auto each = record_bytes(header.features);
  TORCH_CHECK(
      bytes / each == header.records && bytes % each == 0,
      "'",
      path,
      "' is damaged or incomplete: after its header it has ",
      bytes,
      " bytes, but ",
      header.records,
      " records of ",
      each,
      " bytes each were announced");
  return header;
}

} // namespace

struct MappedShards::Shard {
  Shard(std::string path_of, size_t bytes_of)
      : path(std::move(path_of)), bytes(bytes_of) {}
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;
  ~Shard() {
    if (data != nullptr) {
      ::munmap(data, bytes);
    }
  }

  const std::byte* records() {
    const std::lock_guard lock(mutex); // workers ask at once
    if (data == nullptr) {
      map();
    }
    return static_cast<const std::byte*>(data) + sizeof(Header);
  }

  void map() {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    TORCH_CHECK(file >= 0, "cannot open '", path, "': ", last_error());
    void* mapping = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
    const auto reason = last_error();
    ::close(file);
    TORCH_CHECK(
        mapping != MAP_FAILED, "cannot map '", path, "' into memory: ", reason);
    data = mapping;
  }

  const std::string path;
  const size_t bytes;
  std::mutex mutex;
  void* data = nullptr;
};

MappedShards::MappedShards(const std::string& folder) {
  TORCH_CHECK(
      std::filesystem::is_directory(folder),
      "there is no folder '",
      folder,
      "'; --make N writes one");
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".shard") {
      paths.push_back(entry.path().string());
    }
  }
  TORCH_CHECK(!paths.empty(), "there are no files *.shard in '", folder, "'");
  std::sort(paths.begin(), paths.end()); // the same on all ranks
  for (const auto& path : paths) {
    const auto header = read_header(path);
    TORCH_CHECK(
        shards_.empty() || header.features == features_,
        "records in '",
        path,
        "' have ",
        header.features,
        " features, but ",
        features_,
        " in '",
        paths.front(),
        "'");
    features_ = header.features;
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + header.records);
    shards_.push_back(std::make_shared<Shard>(
        path, sizeof(Header) + header.records * record_bytes(features_)));
  }
}

const std::byte* MappedShards::record(size_t index) {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
  TORCH_CHECK_INDEX(
      end != ends_.end(), "there is no record ", index, " of ", *size());
  const auto shard = end - ends_.begin();
  const auto start = shard == 0 ? 0 : ends_[shard - 1];
  return shards_[shard]->records() + (index - start) * record_bytes(features_);
}

torch::data::Example<> MappedShards::get_batch(c10::ArrayRef<size_t> indices) {
  const auto count = static_cast<int64_t>(indices.size());
  auto data = torch::empty({count, static_cast<int64_t>(features_)});
  auto labels = torch::empty({count}, torch::kInt);
  for (int64_t i = 0; i < count; ++i) {
    const auto* from = record(indices[i]);
    const auto bytes = features_ * sizeof(float);
    std::memcpy(data.mutable_data_ptr<float>() + i * features_, from, bytes);
    std::memcpy(
        labels.mutable_data_ptr<int32_t>() + i, from + bytes, sizeof(int32_t));
  }
  return {data, labels.to(torch::kLong)};
}

std::optional<size_t> MappedShards::size() const {
  return ends_.back();
}

size_t MappedShards::features() const {
  return features_;
}

std::vector<size_t> MappedShards::shard_sizes() const {
  std::vector<size_t> sizes = ends_;
  std::adjacent_difference(ends_.begin(), ends_.end(), sizes.begin());
  return sizes;
}

size_t MappedShards::mapped_shards() const {
  return std::count_if(shards_.begin(), shards_.end(), [](const auto& shard) {
    const std::lock_guard lock(shard->mutex);
    return shard->data != nullptr;
  });
}

void write_shard(
    const std::string& path,
    const torch::Tensor& features,
    const torch::Tensor& labels) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  header.features = features.size(1);
  header.records = features.size(0);
  const auto last = labels.to(torch::kInt).view(torch::kFloat).unsqueeze(1);
  const auto records = torch::cat({features, last}, 1).contiguous();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&header), sizeof(header));
  file.write(
      static_cast<const char*>(records.const_data_ptr()),
      static_cast<std::streamsize>(records.nbytes()));
  file.close();
  TORCH_CHECK(file, "cannot write '", path, "': ", last_error());
}
