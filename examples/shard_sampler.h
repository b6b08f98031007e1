#pragma once

#include <ddp/samplers/distributed_sampler.h>
#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

/// A random order of records in many files that lets a rank stay in few of
/// them: the files in an order drawn anew for each epoch, and the records of
/// each file in a random order. Of this sequence each rank takes one piece, of
/// equal length on all; only the files at its ends are another rank's too. Up
/// to as many records as ranks, less one, are left out of an epoch.
///
/// It holds the order of one file at a time. Copies share the epoch.
class ShardSampler : public torch::data::samplers::Sampler<> {
 public:
  /// The piece of this rank of `group`. `shard_sizes`: the number of records in
  /// each file; records are counted through all of them. Every rank has to give
  /// the same sizes and seed. Throws `c10::ValueError` where there are fewer
  /// records than ranks.
  ShardSampler(
      std::vector<size_t> shard_sizes,
      const ddp::ProcessGroup& group,
      uint64_t seed = 0);

  /// Sets the epoch that the next `reset()` draws.
  void set_epoch(int64_t epoch);

  /// The number of records that each rank draws in an epoch.
  size_t size() const;

  void reset(std::optional<size_t> new_size = std::nullopt) override;
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  /// Not implemented; they throw.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void enter(size_t place);

  std::vector<size_t> shard_sizes_;
  uint64_t seed_;
  ddp::DistributedSampler shards_; // all of them: equal on all ranks
  size_t size_; // of this rank's piece
  size_t start_;
  int64_t epoch_ = 0; // of the order
  std::vector<size_t> order_; // of the shards
  size_t place_ = 0; // in it
  std::vector<size_t> records_; // of the shard there
  size_t next_ = 0; // of them
  size_t left_ = 0; // of the piece
};
