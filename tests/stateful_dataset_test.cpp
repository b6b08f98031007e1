// LibTorch's stateful datasets with samplers inside: a user's dataset over a
// stream.

#include <ddp/samplers/distributed_sampler.h>
#include <tests/support/ranks.h>
#include <tests/support/samplers.h>

namespace ddp::test::stateful_dataset_test {

using torch::data::DataLoaderOptions;
using torch::data::datasets::make_shared_dataset;

constexpr size_t kBatch = 4;

/// The numbers in a file, one by one, as a stream without random access; those
/// of other ranks are skipped.
class NumberStream
    : public torch::data::datasets::StatefulDataset<NumberStream, Indices> {
 public:
  NumberStream(std::string path, const StreamSampler& sampler)
      : path_(std::move(path)), sampler_(sampler) {}

  std::optional<Indices> get_batch(size_t batch_size) override {
    const std::lock_guard lock(mutex_); // workers share the dataset
    Indices batch;
    const auto wanted = sampler_.next(batch_size);
    for (const auto index : wanted.value_or(Indices())) {
      size_t number = 0;
      while (next_ <= index && stream_ >> number) {
        ++next_;
      }
      if (!stream_) {
        break;
      }
      batch.push_back(number);
    }
    if (batch.empty()) {
      return std::nullopt;
    }
    return batch;
  }

  void reset() override {
    const std::lock_guard lock(mutex_);
    stream_ = std::ifstream(path_);
    next_ = 0;
    sampler_.reset();
  }
  std::optional<size_t> size() const override {
    return std::nullopt;
  }
  void save(torch::serialize::OutputArchive& archive) const override {
    sampler_.save(archive);
  }
  void load(torch::serialize::InputArchive& archive) override {
    sampler_.load(archive);
  }

 private:
  std::string path_;
  std::mutex mutex_;
  std::ifstream stream_;
  size_t next_ = 0; // the next number of the stream
  StreamSampler sampler_;
};

/// Writes 0, 1, 2, ...
std::string write_numbers(const TemporaryFolder& own, size_t count) {
  std::ofstream file(own / "numbers");
  for (const auto number : up_to(count)) {
    file << number << "\n";
  }
  return own / "numbers";
}

auto loader_of(
    const std::string& path,
    const StreamSampler& sampler,
    const DataLoaderOptions& options) {
  return torch::data::make_data_loader(
      make_shared_dataset<NumberStream>(path, sampler), options);
}

FOLDER_TEST("a rank keeps its own samples of a stream, each exactly once") {
  constexpr size_t kCount = 101;
  const auto path = write_numbers(folder, kCount);
  each_way_to_load(kBatch, [&](const DataLoaderOptions& options) {
    for (const int64_t world : {3, 4}) {
      Indices all;
      for (int64_t rank = 0; rank < world; ++rank) {
        StreamSampler sampler(world, rank);
        const auto loader = loader_of(path, sampler, options);
        Indices part;
        for (auto& batch : *loader) {
          part.insert(part.end(), batch.begin(), batch.end());
          sampler.advance(batch.size()); // while workers draw
        }
        REQUIRE(drain_loader(*loader).size() == part.size());
        all.insert(all.end(), part.begin(), part.end());
      }
      REQUIRE(sorted(all) == up_to(kCount));
    }
  });
}

RANKS_TEST("ranks agree on the last step before the end of a stream") {
  // Ranks 0 and 1 have a ninth batch of one sample; rank 2 has not.
  const TemporaryFolder own;
  const auto path = write_numbers(own, 3 * 8 * kBatch + 2);
  for (const size_t workers : {0, 2}) {
    StreamSampler sampler(group);
    const auto loader =
        loader_of(path, sampler, DataLoaderOptions(kBatch).workers(workers));
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      sampler.set_epoch(epoch);
      int64_t steps = 0;
      auto more = torch::empty({1}, torch::device(group.device()));
      auto batch = loader->begin();
      for (;; ++batch) {
        more.fill_(batch != loader->end() ? 1 : 0);
        group.all_reduce(more, ReduceOp::kMin);
        if (more.item<float>() == 0) {
          break;
        }
        ++steps;
      }
      REQUIRE((batch != loader->end()) == (group.rank() < 2));
      while (batch != loader->end()) {
        ++batch;
      }
      REQUIRE(steps == 8);
    }
  }
}

} // namespace ddp::test::stateful_dataset_test
