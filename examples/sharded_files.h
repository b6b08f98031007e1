#pragma once

#include <ddp/process_group.h>
#include <ddp/random.h>
#include <ddp/samplers/sharded_sampler.h>
#include <torch/data/datasets/base.h>
#include <torch/data/example.h>
#include <torch/types.h>

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

/// Records in files `*.shard` that need not fit into memory: each record has
/// its features and its label, as floats. LibTorch maps each file, so the
/// system reads only the pages that are used, and drops pages if memory is
/// short.
class MappedShards : public torch::data::datasets::
                         BatchDataset<MappedShards, torch::data::Example<>> {
 public:
  /// Lists the files in `folder`, ordered by name, without reading them. Throws
  /// `c10::Error` with the name of a file without a whole number of records.
  MappedShards(const std::string& folder, int64_t features)
      : floats_(features + 1) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".shard") {
        paths_.push_back(entry.path().string());
      }
    }
    TORCH_CHECK(
        !paths_.empty(), "the folder '", folder, "' has no *.shard files");
    std::sort(paths_.begin(), paths_.end()); // the same on all ranks
    for (const auto& path : paths_) {
      const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
      const auto each = floats_ * static_cast<int64_t>(sizeof(float));
      TORCH_CHECK(
          bytes > 0 && bytes % each == 0,
          "'",
          path,
          "' is corrupt or incomplete: its ",
          bytes,
          " bytes are not a whole number of records of ",
          each,
          " bytes");
      sizes_.push_back(bytes / each);
    }
  }

  /// Features, float [batch, features], and labels, int64 [batch]. `indices`
  /// number the records of all files consecutively.
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) override {
    std::vector<torch::Tensor> records;
    for (const auto index : indices) {
      records.push_back(record(static_cast<int64_t>(index)));
    }
    const auto batch = torch::stack(records);
    return {
        batch.narrow(1, 0, floats_ - 1),
        batch.select(1, floats_ - 1).to(torch::kLong)};
  }

  std::optional<size_t> size() const override {
    return std::accumulate(sizes_.begin(), sizes_.end(), int64_t(0));
  }

  /// The number of records in each file.
  const std::vector<int64_t>& shard_sizes() const {
    return sizes_;
  }

 private:
  torch::Tensor record(int64_t index) {
    size_t file = 0;
    while (index >= sizes_[file]) {
      index -= sizes_[file++];
    }
    maps_.resize(sizes_.size());
    if (!maps_[file].defined()) {
      maps_[file] = torch::from_file(
                        paths_[file],
                        /*shared=*/false,
                        sizes_[file] * floats_,
                        torch::kFloat)
                        .view({-1, floats_});
    }
    return maps_[file][index];
  }

  int64_t floats_; // number of floats in a record
  std::vector<std::string> paths_;
  std::vector<int64_t> sizes_;
  std::vector<torch::Tensor> maps_; // of this copy: each worker has one
};

/// A random order of records in many files, with which each rank reads few
/// files. In each epoch, the files and the records of each file are in a new
/// random order. Each rank takes one piece of this sequence, of equal length on
/// all ranks, and shares only the files at its ends with other ranks. An epoch
/// omits fewer records than the number of ranks.
class ShardSampler : public ddp::ShardedSampler {
 public:
  /// The piece of this rank of `group`. `shard_sizes`: the number of records in
  /// each file; indices number the records of all files consecutively.
  ShardSampler(
      const std::vector<int64_t>& shard_sizes,
      const ddp::ProcessGroup& group,
      uint64_t seed)
      : ShardedSampler(
            "ShardSampler",
            std::accumulate(
                shard_sizes.begin(),
                shard_sizes.end(),
                int64_t(0)) /
                group.size() * group.size(),
            group.size(),
            group.rank(),
            Remainder::kDrop),
        shard_sizes_(shard_sizes),
        ranks_(group.size()),
        seed_(seed) {
    check_same(group);
  }

 private:
  torch::Tensor sequence(size_t length, int64_t epoch) const override {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(
        ddp::sample_seed(seed_, epoch, 0));
    std::vector<torch::Tensor> orders;
    int64_t first = 0;
    for (const auto size : shard_sizes_) {
      orders.push_back(
          torch::randperm(size, generator, torch::kLong).add_(first));
      first += size;
    }
    const auto count = static_cast<int64_t>(orders.size());
    const auto files = torch::randperm(count, generator, torch::kLong);
    std::vector<torch::Tensor> all;
    for (int64_t i = 0; i < count; ++i) {
      all.push_back(orders[files[i].item<int64_t>()]);
    }
    // Rank r draws every n-th record from the r-th on. These records form the
    // r-th piece.
    return torch::cat(all)
        .narrow(0, 0, static_cast<int64_t>(length))
        .view({ranks_, -1})
        .t()
        .flatten()
        .contiguous();
  }

  torch::OrderedDict<std::string, int64_t> identity() const override {
    torch::OrderedDict<std::string, int64_t> result;
    result.insert("seed", static_cast<int64_t>(seed_));
    result.insert("ranks", ranks_); // the order depends on this
    return result;
  }

  std::vector<int64_t> shard_sizes_;
  int64_t ranks_;
  uint64_t seed_;
};
