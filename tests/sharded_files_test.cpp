// examples/sharded_files.cpp and the classes it is made of.

#include <examples/sharded_files.h>
#include <tests/support/examples.h>
#include <tests/support/ranks.h>
#include <tests/support/samplers.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>

namespace ddp::test::sharded_files_test {

namespace {

constexpr int64_t kFeatures = 1023; // 4 KiB a record

using Sizes = std::vector<int64_t>;

std::string name_of(size_t shard) {
  return std::string(1, static_cast<char>('a' + shard)) + ".shard";
}

/// Record `i` of all has features that are all i, and label i.
void write_shards(const TemporaryFolder& folder, const Sizes& sizes) {
  int64_t first = 0;
  for (size_t shard = 0; shard < sizes.size(); ++shard) {
    const auto last = first + sizes[shard];
    const auto records = torch::arange(first, last, torch::kFloat)
                             .unsqueeze(1)
                             .expand({-1, kFeatures + 1});
    torch::from_file(
        folder / name_of(shard), true, records.numel(), torch::kFloat)
        .copy_(records.flatten());
    first = last;
  }
}

/// How many KiB of the file this process has touched through mappings, as the
/// kernel counts them.
size_t touched(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  size_t total = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) { // begins with an address range
      inside = line.find(path) != std::string::npos;
    } else if (inside && line.rfind("Rss:", 0) == 0) {
      total += std::stoul(line.substr(4));
    }
  }
  return total;
}

double loss_of(const std::string& output, const std::string& epoch) {
  return std::stod(match(output, epoch + ": loss (\\S+)")[0]);
}

} // namespace

TEST_CASE("the example of sharded files trains on three ranks") {
  const TemporaryFolder folder;
  const auto data = folder / "shards";
  const auto output = output_of(example(
      3,
      "sharded_files",
      {"--data", data, "--make", "9", "--records", "1000"}));
  REQUIRE(loss_of(output, "epoch 3") < 0.9 * loss_of(output, "epoch 1"));
  REQUIRE_THAT(output, ContainsSubstring("3300 of 9900 records"));
  REQUIRE_THAT(output, ContainsSubstring("equal on all ranks"));
  // The files are there for the next run.
  output_of(example(3, "sharded_files", {"--data", data, "--epochs", "1"}));
}

TEST_CASE("the example of sharded files names a file that is damaged") {
  const TemporaryFolder folder;
  write_shards(folder, {17, 17});
  const auto path = folder / name_of(1);
  const auto text = read_text(path);
  write_text(path, text.substr(0, text.size() - 1));
  const auto outcome =
      run(example(3, "sharded_files", {"--data", folder.path()}), kLong);
  INFO(outcome.output);
  REQUIRE(outcome.exit_code != 0);
  REQUIRE_THAT(
      outcome.output,
      ContainsSubstring("b.shard' is damaged or incomplete: its 69631 bytes"));
}

RANKS_TEST("a rank touches the files of its own part alone", 4) {
  const Sizes sizes{40, 50, 60, 40, 50, 60, 40, 50, 60, 40}; // 490 records
  const TemporaryFolder folder;
  write_shards(folder, sizes);
  MappedShards shards(folder.path(), kFeatures);
  REQUIRE(shards.shard_sizes() == sizes);
  ShardSampler sampler(shards.shard_sizes(), group, 3);
  REQUIRE(sampler.size() == 122);
  const auto loader = torch::data::make_data_loader(
      shards, sampler, torch::data::DataLoaderOptions(8).workers(2));
  sampler.set_epoch(5);
  auto seen = torch::zeros({490}, torch::kLong);
  for (auto& batch : *loader) {
    REQUIRE(batch.data.select(1, 0).equal(batch.data.select(1, 1022)));
    REQUIRE(batch.data.select(1, 0).to(torch::kLong).equal(batch.target));
    seen.index_add_(0, batch.target, torch::ones_like(batch.target));
  }
  size_t first = 0;
  size_t used = 0;
  for (size_t shard = 0; shard < sizes.size(); ++shard) {
    const auto end = first + static_cast<size_t>(sizes[shard]);
    const auto count = seen.slice(0, first, end).sum().item<int64_t>();
    const auto kib = touched(folder / name_of(shard));
    INFO("rank " << group.rank() << ", shard " << shard);
    // A record is 4 KiB; with it come pages around it.
    REQUIRE((kib > 0) == (count > 0));
    REQUIRE(kib >= static_cast<size_t>(4 * count));
    used += count > 0;
    first = end;
  }
  REQUIRE(used <= 5); // 122 of 490 records, at most three files of 40 between
  group.all_reduce(seen);
  REQUIRE(seen.max().item<int64_t>() == 1);
  REQUIRE(seen.sum().item<int64_t>() == 488);
}

TEST_CASE("the order of records is another in each epoch, file by file") {
  const Sizes sizes{3, 0, 4, 5};
  ShardSampler sampler(sizes, ProcessGroup(), 1);
  std::vector<Indices> orders, last_files;
  for (const int64_t epoch : {0, 1, 0}) {
    sampler.set_epoch(epoch);
    auto loaders = sampler;
    loaders.reset();
    auto order = drain(loaders);
    orders.push_back(order);
    size_t changes = 0; // of the file
    const auto file = [](size_t i) { return (i >= 3) + (i >= 7); };
    for (size_t i = 1; i < order.size(); ++i) {
      changes += file(order[i - 1]) != file(order[i]);
    }
    REQUIRE(changes == 2);
    Indices last_file;
    std::copy_if(
        order.begin(),
        order.end(),
        std::back_inserter(last_file),
        [&](size_t i) { return file(i) == 2; });
    last_files.push_back(last_file);
    std::sort(order.begin(), order.end());
    Indices all(12);
    std::iota(all.begin(), all.end(), 0);
    REQUIRE(order == all);
  }
  REQUIRE(orders[0] != orders[1]);
  REQUIRE(orders[0] == orders[2]);
  REQUIRE(last_files[0] != last_files[1]);
}

TEST_CASE("a folder without shards is refused") {
  const TemporaryFolder folder;
  REQUIRE_THROWS_WITH(
      MappedShards(folder.path(), kFeatures),
      ContainsSubstring("there are no files *.shard"));
}

} // namespace ddp::test::sharded_files_test
