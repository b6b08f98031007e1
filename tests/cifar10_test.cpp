// The reader of CIFAR-10's files, and what is drawn to change its images.
#include <ddp/ddp.h>
#include <examples/cifar10_resnet/cifar10.h>
#include <tests/support/catch.h>
#include <tests/support/cifar10_files.h>

#include <filesystem>
#include <set>

namespace cifar10_test {

using ddp::test::cifar_records;
using ddp::test::kCifarRecord;
using ddp::test::read_text;
using ddp::test::TemporaryFolder;
using ddp::test::write_cifar;
using ddp::test::write_text;
using Part = Cifar10::Part;

namespace {

torch::Tensor image(Cifar10& images, size_t index) {
  return images.get(index).data;
}

/// All that an image, bytes, can become: [50, 3, 32, 32].
torch::Tensor variants_of(const torch::Tensor& image) {
  const auto padded = torch::constant_pad_nd(
      image.to(torch::kFloat) / 127.5 - 1, {2, 2, 2, 2}, -1);
  std::vector<torch::Tensor> variants;
  for (int64_t y = 0; y < 5; ++y) {
    for (int64_t x = 0; x < 5; ++x) {
      const auto part = padded.slice(1, y, y + 32).slice(2, x, x + 32);
      variants.push_back(part);
      variants.push_back(part.flip(2));
    }
  }
  return torch::stack(variants);
}

/// Which of them `changed` is.
int64_t variant(const torch::Tensor& variants, const torch::Tensor& changed) {
  const auto distance = (variants - changed).abs().amax({1, 2, 3});
  REQUIRE(distance.le(1e-6).sum().item<int64_t>() == 1);
  return distance.argmin().item<int64_t>();
}

} // namespace

TEST_CASE("images and labels are those of the files, in their order") {
  const TemporaryFolder folder;
  write_cifar(folder.path(), 12, 7);
  Cifar10 train(folder.path(), Part::kTrain);
  Cifar10 test(folder / "cifar-10-batches-bin", Part::kTest);
  REQUIRE(train.size() == 60);
  REQUIRE(test.size() == 7);
  for (size_t i = 0; i < 60; ++i) {
    const auto records = cifar_records(12, static_cast<unsigned>(i / 12 + 1));
    const auto record = records.substr(i % 12 * kCifarRecord, kCifarRecord);
    const auto got = train.get(i);
    REQUIRE(got.target.item<int64_t>() == record[0]);
    REQUIRE(got.data.sizes() == torch::IntArrayRef{3, 32, 32});
    for (const int64_t at : {0, 31, 32, 1023, 1024, 2048, 3071}) {
      const auto byte = static_cast<unsigned char>(record[1 + at]);
      const auto value = got.data.flatten()[at].item<float>();
      REQUIRE(std::abs(value - (byte / 127.5F - 1)) < 1e-6F);
    }
  }
  const auto bytes = read_text(folder / "cifar-10-batches-bin/test_batch.bin");
  const auto last = test.images()[6].flatten();
  REQUIRE(
      std::string(last.data_ptr<uint8_t>(), last.data_ptr<uint8_t>() + 3072) ==
      bytes.substr(6 * kCifarRecord + 1));
  REQUIRE(test.labels()[6].item<int64_t>() == 6);
}

TEST_CASE("files that are missing are named, and where to get them") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& path, const std::string& reason) {
    REQUIRE_THROWS_WITH(
        Cifar10(path, Part::kTrain),
        ContainsSubstring(reason) &&
            ContainsSubstring("https://www.cs.toronto.edu/~kriz/cifar.html") &&
            ContainsSubstring("data_batch_1.bin to data_batch_5.bin"));
  };
  refused(folder / "none", "none': there is no such folder");
  refused(folder.path(), "it is empty");
  write_text(folder / "cifar-10-batches-py", "for Python");
  refused(folder.path(), "it has cifar-10-batches-py");
  write_cifar(folder.path(), 1, 1);
  const auto inner = folder / "cifar-10-batches-bin";
  std::filesystem::remove(inner + "/data_batch_4.bin");
  std::filesystem::remove(inner + "/test_batch.bin");
  refused(folder.path(), "missing: data_batch_4.bin, test_batch.bin. Get");
}

TEST_CASE("a file that is damaged is named") {
  const TemporaryFolder folder;
  write_cifar(folder.path(), 3, 3);
  const auto path = folder / "cifar-10-batches-bin/data_batch_3.bin";
  const auto good = read_text(path);
  const auto refused = [&](const std::string& bytes,
                           const std::string& reason) {
    write_text(path, bytes);
    REQUIRE_THROWS_WITH(
        Cifar10(folder.path(), Part::kTrain),
        ContainsSubstring("data_batch_3.bin is ") && ContainsSubstring(reason));
    REQUIRE_NOTHROW(Cifar10(folder.path(), Part::kTest));
  };
  refused("", "it has 0 bytes");
  refused(good.substr(0, good.size() - 1), "it has 9218 bytes, expected whole");
  refused(good + "x", "it has 9220 bytes");
  for (const char label : {'\x0a', '\xff'}) {
    auto changed = good;
    changed[2 * kCifarRecord] = label;
    refused(
        changed,
        "record 2 has the label " +
            std::to_string(static_cast<unsigned char>(label)));
  }
}

TEST_CASE("images are shifted and mirrored by seed, epoch and index alone") {
  const TemporaryFolder folder;
  write_cifar(folder.path(), 20, 1);
  Cifar10 plain(folder.path(), Part::kTrain);
  auto images = plain;
  images.augment(5);
  auto same = plain;
  same.augment(5);
  auto other = plain;
  other.augment(6);
  std::set<int64_t> seen;
  size_t as_before = 0;
  size_t as_others = 0;
  for (size_t i = 0; i < 100; ++i) {
    const auto variants = variants_of(plain.images()[static_cast<int64_t>(i)]);
    REQUIRE(variant(variants, image(plain, i)) == 2 * 12); // 2 down, 2 right
    std::vector<int64_t> epochs;
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      images.set_epoch(epoch);
      epochs.push_back(variant(variants, image(images, i)));
      REQUIRE(image(same, i).equal(image(images, i))); // copies share the epoch
      as_others += image(other, i).equal(image(images, i));
      as_before += epoch > 0 && epochs[epoch] == epochs[epoch - 1];
    }
    seen.insert(epochs.begin(), epochs.end());
  }
  REQUIRE(seen.size() == 50); // 500 draws: one is missing in 1 of 500 cases
  REQUIRE(as_before < 30); // 400 / 50 are to be expected
  REQUIRE(as_others < 30);
}

TEST_CASE("neither workers nor ranks change what is drawn") {
  const TemporaryFolder folder;
  write_cifar(folder.path(), 6, 1);
  Cifar10 images(folder.path(), Part::kTrain);
  images.augment(1);
  images.set_epoch(3);
  for (const size_t workers : {0, 3}) {
    for (int64_t rank = 0; rank < 3; ++rank) {
      const auto loader = ddp::make_data_loader(
          images.map(torch::data::transforms::Stack<>()),
          ddp::EvaluationSampler(30, 3, rank),
          ddp::DataLoaderOptions(4).workers(workers));
      auto index = static_cast<size_t>(rank);
      for (const auto& batch : *loader) {
        for (int64_t i = 0; i < batch.data.size(0); ++i, index += 3) {
          REQUIRE(batch.data[i].equal(image(images, index)));
          REQUIRE(batch.target[i].equal(images.get(index).target));
        }
      }
      REQUIRE(index >= 30);
    }
  }
}

} // namespace cifar10_test
