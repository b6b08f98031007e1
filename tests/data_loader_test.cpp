#include <ddp/ddp.h>
#include <tests/support/made_samples.h>
#include <tests/support/samplers.h>

namespace ddp::test::data_loader_test {

using torch::data::Example;
using torch::data::TensorExample;
using torch::data::samplers::SequentialSampler;
using torch::data::transforms::Stack;

/// Samples that contain their indices, as a row of floats and a scalar.
Made make_rows() {
  return Made([](size_t index) {
    const auto value = static_cast<int64_t>(index);
    return torch::full({2, 3}, value, torch::kFloat).t(); // not contiguous
  });
}

struct Columns : torch::data::datasets::Dataset<Columns, TensorExample> {
  TensorExample get(size_t index) override {
    return torch::full({4}, static_cast<int64_t>(index));
  }
  std::optional<size_t> size() const override {
    return kSize;
  }
};

/// Reads in bulk: a sample knows its batch's size.
struct Bulk : torch::data::datasets::BatchDataset<Bulk> {
  std::vector<Example<>> get_batch(c10::ArrayRef<size_t> indices) override {
    std::vector<Example<>> batch;
    for (const auto index : indices) {
      batch.emplace_back(
          torch::full({2}, static_cast<int64_t>(index)),
          torch::tensor(static_cast<int64_t>(indices.size())));
    }
    return batch;
  }
  std::optional<size_t> size() const override {
    return kSize;
  }
};

/// Defines `get_batch`.
struct OwnBatch : torch::data::datasets::Dataset<OwnBatch> {
  Example<> get(size_t index) override {
    return make_rows().get(index);
  }
  std::vector<Example<>> get_batch(c10::ArrayRef<size_t> indices) override {
    return Bulk().get_batch(indices);
  }
  std::optional<size_t> size() const override {
    return kSize;
  }
};

/// Subtracts the first sample of its batch from each.
struct Relative
    : torch::data::transforms::
          BatchTransform<std::vector<Example<>>, std::vector<Example<>>> {
  std::vector<Example<>> apply_batch(std::vector<Example<>> batch) override {
    const auto first = batch[0].data.clone();
    for (auto& example : batch) {
      example.data = example.data - first;
    }
    return batch;
  }
};

bool same(const Example<>& a, const Example<>& b) {
  return torch::equal(a.data, b.data) && torch::equal(a.target, b.target);
}
bool same(const TensorExample& a, const TensorExample& b) {
  return torch::equal(a.data, b.data);
}
bool same(const Indices& a, const Indices& b) {
  return a == b;
}

/// Requires that the batches of both loaders are equal for two epochs.
template <typename Dataset, typename Sampler>
void compare_with_libtorch(const Dataset& dataset, const Sampler& sampler) {
  for (const size_t workers : {0, 1, 3, 4}) {
    for (const bool drop_last : {false, true}) {
      INFO(workers << " workers, drop_last " << drop_last);
      auto theirs = torch::data::make_data_loader(
          dataset,
          sampler,
          torch::data::DataLoaderOptions(4).workers(workers).drop_last(
              drop_last));
      auto ours = make_data_loader(
          dataset,
          sampler,
          DataLoaderOptions(4).workers(workers).drop_last(drop_last));
      for (int epoch = 0; epoch < 2; ++epoch) {
        std::vector<typename Dataset::BatchType> expected;
        torch::manual_seed(epoch);
        for (auto& batch : *theirs) {
          expected.push_back(batch);
        }
        torch::manual_seed(epoch);
        size_t count = 0;
        for (auto& batch : *ours) {
          REQUIRE(count < expected.size());
          REQUIRE(same(batch, expected[count++]));
        }
        REQUIRE(count == expected.size());
      }
    }
  }
}

TEST_CASE("a data loader gives the batches of LibTorch's") {
  const auto rows = make_rows().map(Stack<>());
  compare_with_libtorch(rows, SequentialSampler(kSize));
  compare_with_libtorch(rows, torch::data::samplers::RandomSampler(kSize));
  compare_with_libtorch(rows, DistributedSampler(kSize, 3, 1));
  compare_with_libtorch(rows, EvaluationSampler(kSize, 3, 0));
  compare_with_libtorch(
      rows, DistributedWeightedSampler(torch::arange(1.0, 51.0), 40, 3, 1));
  compare_with_libtorch(
      rows, StreamSampler(3, 1, StreamSamplerOptions().epoch_size(40)));
  compare_with_libtorch(
      rows,
      BatchSampler<DistributedSampler>(
          DistributedSampler(kSize, 3, 2), 5, false));
  compare_with_libtorch(
      Columns().map(Stack<TensorExample>()), SequentialSampler(kSize));
  compare_with_libtorch(Numbers(kSize), SequentialSampler(kSize));
  compare_with_libtorch(
      make_rows()
          .map(torch::data::transforms::Normalize<>(2.0, 3.0))
          .map(Stack<>()),
      SequentialSampler(kSize));
  // Batches that are more than their samples:
  compare_with_libtorch(Bulk().map(Stack<>()), SequentialSampler(kSize));
  compare_with_libtorch(OwnBatch().map(Stack<>()), SequentialSampler(kSize));
  compare_with_libtorch(
      make_rows().map(Relative()).map(Stack<>()), SequentialSampler(kSize));
}

TEST_CASE("a data loader draws its order as LibTorch's, where none is named") {
  const auto rows = make_rows().map(Stack<>());
  torch::manual_seed(1);
  const auto theirs = (*torch::data::make_data_loader(rows, 50)->begin());
  torch::manual_seed(1);
  const auto ours = (*ddp::make_data_loader(rows, 50)->begin());
  REQUIRE(torch::equal(theirs.target, ours.target));
  const auto in_order = make_data_loader<SequentialSampler>(
      rows, DataLoaderOptions(4).enforce_ordering(false).workers(2));
  REQUIRE(torch::equal((*in_order->begin()).target, torch::arange(4)));
}

TEST_CASE("a batch's memory is used again, once nobody holds it") {
  for (const size_t workers : {0, 2}) {
    auto loader =
        loader_of(DataLoaderOptions(2).workers(workers), [](size_t index) {
          return torch::full({1000}, static_cast<int64_t>(index));
        });
    std::set<void*> seen;
    for (int epoch = 0; epoch < 4; ++epoch) {
      for (auto& batch : *loader) {
        seen.insert(batch.data.data_ptr());
      }
    }
    INFO(workers << " workers");
    REQUIRE(seen.size() <= 2 * workers + 3); // of 100 batches
    std::vector<at::Tensor> held;
    for (auto& batch : *loader) {
      held.push_back(batch.data[0]); // a view of half of it
    }
    loader.reset();
    for (size_t i = 0; i < held.size(); ++i) {
      REQUIRE(held[i].eq(static_cast<int64_t>(2 * i)).all().item<bool>());
    }
    std::thread([&] { held.clear(); }).join();
  }
}

TEST_CASE("an error of the dataset comes as it was thrown, in its turn") {
  for (const size_t workers : {0, 1, 4}) {
    std::atomic<bool> fails = true;
    auto loader =
        loader_of(DataLoaderOptions(2).workers(workers), [&](size_t index) {
          if (fails && index == 21) {
            throw std::out_of_range("sample 21 is broken");
          }
          return torch::zeros({1});
        });
    size_t batches = 0;
    const auto run = [&] {
      for (auto& batch : *loader) {
        batches += batch.data.size(0) == 2;
      }
    };
    INFO(workers << " workers");
    REQUIRE_THROWS_AS(run(), std::out_of_range);
    REQUIRE(batches == 10);
    auto iterator = loader->begin();
    for (int i = 0; i < 9; ++i) {
      ++iterator;
    }
    REQUIRE_THROWS_AS(++iterator, std::out_of_range);
    REQUIRE_THROWS_WITH(++iterator, Has("this iteration is over"));
    fails = false;
    batches = 0;
    run();
    REQUIRE(batches == 25);
  }
}

TEST_CASE("a loader says how many batches it has") {
  for (const size_t batch_size : {1, 4, 7, 10, 11}) {
    for (const bool drop_last : {false, true}) {
      auto loader = make_data_loader(
          Made([](size_t) { return torch::zeros({1}); }).map(Stack<>()),
          DistributedSampler(kSize, 3, 1),
          DataLoaderOptions(batch_size).drop_last(drop_last));
      size_t batches = 0;
      std::optional<State> middle;
      for (auto& batch : *loader) {
        batches += batch.data.defined();
        if (batches == 2) {
          middle = loader->state_dict();
        }
      }
      REQUIRE(loader->size() == batches);
      if (middle) {
        loader->load_state_dict(*middle);
        REQUIRE(loader->size() == batches); // the whole epoch's
      }
    }
  }
}

TEST_CASE("samples that cannot be stacked are named") {
  auto shapes = loader_of(DataLoaderOptions(4).workers(0), [](size_t index) {
    return torch::zeros({index == 7 ? 3 : 2});
  });
  auto iterator = shapes->begin();
  REQUIRE_THROWS_WITH(
      ++iterator,
      Has("sample 7 is CPUFloatType[3], but another sample of the batch is "
          "CPUFloatType[2]"));
  auto dtypes = loader_of(DataLoaderOptions(4).workers(0), [](size_t index) {
    return torch::zeros({2}, index ? torch::kFloat : torch::kInt);
  });
  REQUIRE_THROWS_AS(*dtypes->begin(), c10::ValueError);
  auto undefined =
      loader_of(DataLoaderOptions(4), [](size_t) { return at::Tensor(); });
  REQUIRE_THROWS_WITH(
      *undefined->begin(), Has("sample 0 is not a dense tensor"));
  REQUIRE_THROWS_AS(loader_of(DataLoaderOptions(0), {}), c10::ValueError);
  REQUIRE_THROWS_WITH(
      loader_of(DataLoaderOptions(-1), {}), Has("batch_size is -1"));
  REQUIRE_THROWS_WITH(
      loader_of(DataLoaderOptions(4).workers(-2), {}), Has("workers is -2"));
}

TEST_CASE("samples are stacked as they read, whatever their memory holds") {
  const auto numbers = torch::arange(1, 7, torch::kFloat);
  const auto complex = torch::complex(numbers, -numbers);
  const auto zero = torch::_efficientzerotensor({6}, torch::kFloat);
  for (const auto& sample :
       {complex.conj(),
        torch::imag(complex.conj()),
        torch::imag(complex.conj()).slice(0, 2),
        torch::_neg_view(numbers),
        torch::ones({}).expand({6}),
        numbers.slice(0, 3),
        zero}) {
    auto loader = loader_of(
        DataLoaderOptions(2).workers(0), [&](size_t) { return sample; });
    REQUIRE(torch::equal(
        loader->begin()->data, torch::stack({sample.clone(), sample.clone()})));
  }
  for (const auto& sample :
       {torch::eye(3).to_sparse(),
        torch::empty({2}, torch::kMeta),
        torch::quantize_per_tensor(numbers, 1, 0, torch::kQInt8),
        torch::_add_batch_dim(torch::ones({2, 3}), 0, 1)}) {
    auto loader = loader_of(
        DataLoaderOptions(2).workers(0), [&](size_t) { return sample; });
    REQUIRE_THROWS_WITH(
        *loader->begin(), Has("sample 0 is not a dense tensor"));
  }
}

TEST_CASE("a data loader says when the next batch takes too long") {
  std::promise<void> first_is_loaded, go_on;
  auto gate = go_on.get_future().share();
  auto loader = loader_of(
      DataLoaderOptions(4).workers(1).timeout(std::chrono::milliseconds(100)),
      [&](size_t index) {
        if (index == 5) {
          first_is_loaded.set_value();
          gate.wait();
        }
        return torch::zeros({1});
      });
  auto iterator = loader->begin();
  first_is_loaded.get_future().wait();
  REQUIRE((*iterator).data.size(0) == 4);
  const auto warnings = warnings_of(
      [&] { REQUIRE_THROWS_WITH(++iterator, Has("not ready after 100 ms")); });
  go_on.set_value();
  // A program whose worker hangs shows only the warning.
  REQUIRE(warnings.size() == 1);
  REQUIRE_THAT(warnings[0], Has("not ready after 100 ms"));
}

} // namespace ddp::test::data_loader_test
