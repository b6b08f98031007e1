// LibTorch's ChunkDataset with samplers inside.

#include <ddp/samplers/distributed_sampler.h>
#include <tests/support/samplers.h>

namespace ddp::test::chunk_dataset_test {

using torch::data::DataLoaderOptions;
using torch::data::datasets::ChunkDataset;
using torch::data::datasets::ChunkDatasetOptions;
using torch::data::datasets::make_shared_dataset;

constexpr size_t kBatch = 4;

size_t size_of(size_t chunk) {
  return 3 + chunk % 4;
}

/// Chunk `c` holds 100 c, 100 c + 1, ...; records which chunks were read.
class Reader : public torch::data::datasets::ChunkDataReader<size_t> {
 public:
  using BatchType = ChunkType;

  explicit Reader(size_t count) : count_(count) {}

  ChunkType read_chunk(size_t chunk) override {
    const std::lock_guard lock(*mutex_);
    read_->push_back(chunk);
    ChunkType examples;
    for (size_t i = 0; i < size_of(chunk); ++i) {
      examples.push_back(100 * chunk + i);
    }
    return examples;
  }
  size_t chunk_count() override {
    return count_;
  }
  void reset() override {}

  Indices chunks_read() const {
    const std::lock_guard lock(*mutex_);
    return *read_;
  }

 private:
  size_t count_;
  std::shared_ptr<std::mutex> mutex_ = std::make_shared<std::mutex>();
  std::shared_ptr<Indices> read_ = std::make_shared<Indices>();
};

/// The order of a chunk's examples: only this process's, so one replica.
DistributedSampler whole_chunk() {
  return DistributedSampler(1, 1, 0, SamplerOptions().seed(5));
}

template <typename ChunkSampler>
auto chunks(
    const Reader& reader,
    const ChunkSampler& sampler,
    size_t preloaders,
    const DistributedSampler& examples = whole_chunk()) {
  return make_shared_dataset<
      ChunkDataset<Reader, ChunkSampler, DistributedSampler>>(
      reader, sampler, examples, ChunkDatasetOptions(preloaders, kBatch, 8));
}

template <typename Dataset>
auto loader_of(const Dataset& dataset, size_t workers = 0) {
  return torch::data::make_data_loader(
      dataset, DataLoaderOptions(kBatch).workers(workers));
}

Indices all_examples(size_t chunk_count) {
  Indices all;
  for (size_t chunk = 0; chunk < chunk_count; ++chunk) {
    for (size_t i = 0; i < size_of(chunk); ++i) {
      all.push_back(100 * chunk + i);
    }
  }
  return all;
}

TEST_CASE("each chunk of a ChunkDataset is on exactly one rank") {
  constexpr size_t kChunks = 13;
  each_way_to_load(kBatch, [&](const DataLoaderOptions& options) {
    for (const int64_t world : {3, 4}) {
      for (const size_t preloaders : {1, 2, 3}) {
        INFO(world << " ranks, " << preloaders << " preloaders");
        Indices all[2];
        for (int64_t rank = 0; rank < world; ++rank) {
          EvaluationSampler sampler(kChunks, world, rank);
          const auto loader = torch::data::make_data_loader(
              chunks(Reader(kChunks), sampler, preloaders), options);
          for (int64_t epoch = 0; epoch < 2; ++epoch) {
            sampler.set_epoch(epoch);
            const auto part = drain_loader(*loader);
            all[epoch].insert(all[epoch].end(), part.begin(), part.end());
          }
        }
        REQUIRE(sorted(all[0]) == all_examples(kChunks));
        REQUIRE(sorted(all[1]) == all_examples(kChunks));
      }
    }
  });
}

TEST_CASE("a new epoch reaches the chunks of a ChunkDataset") {
  constexpr size_t kChunks = 24;
  for (const int64_t world : {3, 4}) {
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      for (int64_t rank = 0; rank < world; ++rank) {
        DistributedSampler sampler(kChunks, world, rank);
        const Reader reader(kChunks);
        const auto loader = loader_of(chunks(reader, sampler, 1), 2);
        sampler.set_epoch(epoch);
        drain_loader(*loader);
        DistributedSampler expected(kChunks, world, rank);
        expected.set_epoch(epoch);
        expected.reset();
        REQUIRE(reader.chunks_read() == drain(expected));
      }
    }
  }
}

TEST_CASE("the examples of a chunk have the order of their own sampler") {
  const auto order_in = [](int64_t epoch) {
    EvaluationSampler sampler(2, 1, 0);
    auto examples = whole_chunk();
    const auto loader = loader_of(chunks(Reader(2), sampler, 1, examples));
    examples.set_epoch(epoch);
    return drain_loader(*loader);
  };
  REQUIRE(sorted(order_in(0)) == all_examples(2));
  REQUIRE(order_in(0) == order_in(0));
  REQUIRE(order_in(0) != order_in(1));
}

TEST_CASE("an example sampler that leaves examples out is an error") {
  EvaluationSampler sampler(6, 1, 0);
  const DistributedSampler share(1, 3, 0); // wrong: this rank's share
  const auto loader = loader_of(chunks(Reader(6), sampler, 1, share));
  REQUIRE_THROWS(drain_loader(*loader));
}

TEST_CASE("a ChunkDataset goes on with the chunks that were not drawn") {
  constexpr size_t kChunks = 30;
  EvaluationSampler sampler(kChunks, 3, 1);
  std::stringstream bytes;
  {
    const auto dataset = chunks(Reader(kChunks), sampler, 1);
    const auto loader = loader_of(dataset);
    auto batch = loader->begin();
    ++batch;
    torch::serialize::OutputArchive archive;
    dataset->save(archive);
    archive.save_to(bytes);
  }
  torch::serialize::InputArchive archive;
  archive.load_from(bytes);
  c10::IValue position;
  archive.read("position", position);
  sampler.set_epoch(1);
  sampler.set_epoch(0);
  sampler.reset();
  auto rest = drain(sampler);
  REQUIRE(position.toInt() > 0);
  REQUIRE(position.toInt() < 10);
  rest.erase(rest.begin(), rest.begin() + position.toInt());

  SECTION("through the sampler, which goes on with whole epochs") {
    EvaluationSampler held(kChunks, 3, 1);
    const Reader reader(kChunks);
    const auto loader = loader_of(chunks(reader, held, 1));
    held.load(archive);
    drain_loader(*loader);
    REQUIRE(reader.chunks_read() == rest);
    held.set_epoch(1);
    drain_loader(*loader);
    REQUIRE(reader.chunks_read().size() == rest.size() + 10);
  }
  SECTION("through ChunkDataset::load, which never resets its sampler again") {
    const Reader reader(kChunks);
    auto dataset = chunks(reader, EvaluationSampler(kChunks, 3, 1), 1);
    const auto loader = loader_of(dataset);
    dataset->load(archive);
    drain_loader(*loader);
    REQUIRE(reader.chunks_read() == rest);
    dataset->chunk_sampler().reset(); // by hand, before each later epoch
    drain_loader(*loader);
    REQUIRE(reader.chunks_read().size() == rest.size() + 10);
  }
}

} // namespace ddp::test::chunk_dataset_test
