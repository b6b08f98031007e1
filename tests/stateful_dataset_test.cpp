// LibTorch's stateful datasets with samplers inside: ChunkDataset, and one of
// a user's own over a stream.

#include <samplers/distributed_sampler.h>
#include <samplers/evaluation_sampler.h>
#include <samplers/stream_sampler.h>
#include <tests/support/catch.h>
#include <tests/support/ranks.h>
#include <tests/support/samplers.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>

using ddp::DistributedSampler;
using ddp::EvaluationSampler;
using ddp::ProcessGroup;
using ddp::SamplerOptions;
using ddp::StreamSampler;
using ddp::test::drain;
using ddp::test::ranks;
using ddp::test::TemporaryFolder;
using torch::data::DataLoaderOptions;
using torch::data::datasets::ChunkDataset;
using torch::data::datasets::ChunkDatasetOptions;
using torch::data::datasets::make_shared_dataset;
using Indices = std::vector<size_t>;

namespace {

size_t size_of(size_t chunk) {
  return 3 + chunk % 4;
}

/// Chunk `c` holds 100 c, 100 c + 1, ...; notes which chunks were read.
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

constexpr size_t kBatch = 4;

/// The order of a chunk's examples: this process's alone, so one replica.
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
auto loader_of(const Dataset& dataset, size_t workers, bool ordered) {
  return torch::data::make_data_loader(
      dataset,
      DataLoaderOptions(kBatch).workers(workers).enforce_ordering(ordered));
}

template <typename Loader>
Indices drain_loader(Loader& loader) {
  Indices all;
  for (auto& batch : loader) {
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

Indices sorted(Indices indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
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

template <typename Body>
void each_way_to_load(const Body& body) {
  for (const size_t workers : {0, 1, 2, 3, 4}) {
    for (const bool ordered : {true, false}) {
      INFO(workers << " workers, ordered: " << ordered);
      body(workers, ordered);
    }
  }
}

/// The numbers in a file, one by one, as a stream that cannot be sought in;
/// this rank's are kept and the others' passed over.
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
  size_t next_ = 0; // what the stream gives next
  StreamSampler sampler_;
};

/// Writes 0, 10, 20, ...
std::string write_numbers(const TemporaryFolder& folder, size_t count) {
  std::ofstream file(folder / "numbers");
  for (size_t i = 0; i < count; ++i) {
    file << 10 * i << "\n";
  }
  return folder / "numbers";
}

Indices numbers(size_t count) {
  Indices all;
  for (size_t i = 0; i < count; ++i) {
    all.push_back(10 * i);
  }
  return all;
}

} // namespace

TEST_CASE("each chunk of a ChunkDataset is on exactly one rank") {
  constexpr size_t kChunks = 13;
  each_way_to_load([&](size_t workers, bool ordered) {
    for (const int64_t world : {3, 4}) {
      for (const size_t preloaders : {1, 2, 3}) {
        INFO(world << " ranks, " << preloaders << " preloaders");
        Indices all[2];
        for (int64_t rank = 0; rank < world; ++rank) {
          EvaluationSampler sampler(kChunks, world, rank);
          const auto loader = loader_of(
              chunks(Reader(kChunks), sampler, preloaders), workers, ordered);
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
    Indices before;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      Indices all;
      for (int64_t rank = 0; rank < world; ++rank) {
        DistributedSampler sampler(kChunks, world, rank);
        const Reader reader(kChunks);
        const auto loader = loader_of(chunks(reader, sampler, 1), 2, true);
        sampler.set_epoch(epoch);
        drain_loader(*loader);
        DistributedSampler expected(kChunks, world, rank);
        expected.set_epoch(epoch);
        expected.reset();
        REQUIRE(reader.chunks_read() == drain(expected));
        const auto part = reader.chunks_read();
        all.insert(all.end(), part.begin(), part.end());
      }
      REQUIRE(all != before);
      before = all;
      all = sorted(all);
      REQUIRE(all.size() == kChunks);
      REQUIRE(std::unique(all.begin(), all.end()) == all.end());
    }
  }
}

TEST_CASE("the examples of a chunk have the order of their own sampler") {
  const auto order_in = [](int64_t epoch) {
    EvaluationSampler sampler(2, 1, 0);
    auto examples = whole_chunk();
    const auto loader =
        loader_of(chunks(Reader(2), sampler, 1, examples), 0, true);
    examples.set_epoch(epoch);
    return drain_loader(*loader);
  };
  REQUIRE(sorted(order_in(0)) == all_examples(2));
  REQUIRE(order_in(0) == order_in(0));
  REQUIRE(order_in(0) != order_in(1));
}

TEST_CASE("an example sampler that leaves examples out is an error") {
  EvaluationSampler sampler(6, 1, 0);
  const DistributedSampler share(1, 3, 0); // of this rank, which is wrong
  const auto loader = loader_of(chunks(Reader(6), sampler, 1, share), 0, true);
  REQUIRE_THROWS(drain_loader(*loader));
}

TEST_CASE("a ChunkDataset goes on with the chunks that were not drawn") {
  constexpr size_t kChunks = 30;
  EvaluationSampler sampler(kChunks, 3, 1);
  std::stringstream bytes;
  {
    const auto dataset = chunks(Reader(kChunks), sampler, 1);
    const auto loader = loader_of(dataset, 0, true);
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
    const auto loader = loader_of(chunks(reader, held, 1), 0, true);
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
    const auto loader = loader_of(dataset, 0, true);
    dataset->load(archive);
    drain_loader(*loader);
    REQUIRE(reader.chunks_read() == rest);
    dataset->chunk_sampler().reset(); // by hand, before each later epoch
    drain_loader(*loader);
    REQUIRE(reader.chunks_read().size() == rest.size() + 10);
  }
}

TEST_CASE("a rank keeps its own samples of a stream, each exactly once") {
  constexpr size_t kCount = 101;
  const TemporaryFolder folder;
  const auto path = write_numbers(folder, kCount);
  each_way_to_load([&](size_t workers, bool ordered) {
    for (const int64_t world : {3, 4}) {
      Indices all;
      for (int64_t rank = 0; rank < world; ++rank) {
        StreamSampler sampler(world, rank);
        const auto loader = loader_of(
            make_shared_dataset<NumberStream>(path, sampler), workers, ordered);
        Indices part;
        for (auto& batch : *loader) {
          part.insert(part.end(), batch.begin(), batch.end());
          sampler.advance(batch.size()); // while workers draw
        }
        REQUIRE(drain_loader(*loader).size() == part.size());
        all.insert(all.end(), part.begin(), part.end());
      }
      REQUIRE(sorted(all) == numbers(kCount));
    }
  });
}

TEST_CASE("epochs of a stream in a file follow one another") {
  constexpr size_t kCount = 48;
  const TemporaryFolder folder;
  const auto path = write_numbers(folder, kCount);
  const auto options = ddp::StreamSamplerOptions().epoch_size(24);
  Indices all;
  for (int64_t rank = 0; rank < 3; ++rank) {
    StreamSampler sampler(3, rank, options);
    const auto loader =
        loader_of(make_shared_dataset<NumberStream>(path, sampler), 2, true);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      sampler.set_epoch(epoch);
      const auto part = drain_loader(*loader);
      REQUIRE(part.size() == (epoch < 2 ? 8 : 0)); // then the stream is over
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  REQUIRE(sorted(all) == numbers(kCount));
}

TEST_CASE("a stream in a file is gone on with by other ranks") {
  constexpr size_t kCount = 101;
  const TemporaryFolder folder;
  const auto path = write_numbers(folder, kCount);
  for (const size_t workers : {0, 1}) { // more of them mix the order
    Indices all;
    std::optional<torch::OrderedDict<std::string, at::Tensor>> state, reached;
    for (const int64_t world : {4, 3, 5}) {
      for (int64_t rank = 0; rank < world; ++rank) {
        StreamSampler sampler(world, rank);
        if (state) {
          sampler.load_state_dict(*state);
        }
        const auto loader = loader_of(
            make_shared_dataset<NumberStream>(path, sampler), workers, true);
        size_t step = 0;
        for (auto& batch : *loader) {
          all.insert(all.end(), batch.begin(), batch.end());
          sampler.advance(batch.size());
          if (world != 5 && ++step == 3) {
            break;
          }
        }
        if (rank == 0) {
          reached = sampler.state_dict();
        }
      }
      state = reached;
    }
    REQUIRE(sorted(all) == numbers(kCount));
  }
}

TEST_CASE("ranks agree on the last step before the end of a stream") {
  ranks(3, [](ProcessGroup group) {
    // Ranks 0 and 1 have a ninth batch of one sample; rank 2 has not.
    const TemporaryFolder folder;
    const auto path = write_numbers(folder, 3 * 8 * kBatch + 2);
    for (const size_t workers : {0, 2}) {
      StreamSampler sampler(group);
      const auto loader = loader_of(
          make_shared_dataset<NumberStream>(path, sampler), workers, true);
      for (int64_t epoch = 0; epoch < 2; ++epoch) {
        sampler.set_epoch(epoch);
        int64_t steps = 0;
        auto more = torch::empty({1}, torch::device(group.device()));
        auto batch = loader->begin();
        for (;; ++batch) {
          more.fill_(batch != loader->end() ? 1 : 0);
          group.all_reduce(more, ddp::ReduceOp::kMin);
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
  });
}
