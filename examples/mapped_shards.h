#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/example.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Records in files that need not fit into memory. A file is mapped when the
/// first of its records is read; the system then reads the pages that are used,
/// and drops them where memory is short. Copies (a data loader's workers have
/// one each) share the mappings.
///
/// A file `*.shard`: the text "shard01\n", how many features a record has and
/// how many records there are (uint64 each), then the records: features
/// (float), label (int32); all little-endian. It must not change while mapped.
class MappedShards : public torch::data::datasets::
                         BatchDataset<MappedShards, torch::data::Example<>> {
 public:
  /// The files in `folder`, ordered by name, of which only the first 24 bytes
  /// are read. Throws `c10::Error` that names the file and what is wrong in it.
  explicit MappedShards(const std::string& folder);

  /// Features, float [batch, features], and labels, int64 [batch]. `indices`
  /// count through the records of all files.
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) override;

  /// The number of records.
  std::optional<size_t> size() const override;

  size_t features() const;

  /// The number of records in each file.
  std::vector<size_t> shard_sizes() const;

  /// How many files were mapped so far.
  size_t mapped_shards() const;

 private:
  struct Shard;

  const std::byte* record(size_t index);

  size_t features_ = 0;
  std::vector<size_t> ends_; // of each file's records, among all
  std::vector<std::shared_ptr<Shard>> shards_;
};

/// Writes a file of `features`, float [records, features], and `labels`, of an
/// integer dtype [records].
void write_shard(
    const std::string& path,
    const torch::Tensor& features,
    const torch::Tensor& labels);
