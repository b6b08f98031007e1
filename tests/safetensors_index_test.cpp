// Hugging Face's index of several safetensors files.
#include <checkpoint/formats/safetensors_index.h>
#include <ddp/ddp.h>
#include <tests/support/launched.h>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

namespace ddp::test::safetensors_index_test {

using detail::write_sharded_safetensors;
using Names = std::set<std::string>;

const std::string kIndex = "model.safetensors.index.json";

torch::nn::Sequential net() {
  return torch::nn::Sequential(
      torch::nn::Linear(4, 3), torch::nn::Linear(3, 2));
}

/// Four tensors of 16, 16, 40 and 8 bytes.
StateDict tensors(float first) {
  StateDict result;
  result.insert("d", torch::full({4}, first));
  result.insert("a", torch::full({4}, first + 1));
  result.insert("c", torch::full({10}, first + 2));
  result.insert("b", torch::full({1}, int64_t{7}));
  return result;
}

bool equal(const StateDict& seen, const StateDict& expected) {
  auto names = expected.keys();
  std::sort(names.begin(), names.end());
  return seen.keys() == names &&
      std::all_of(names.begin(), names.end(), [&](const auto& name) {
           return seen[name].equal(expected[name]);
         });
}

StateDict tensors_of(const std::string& path) {
  return detail::read_sharded_safetensors(path, [](const std::string& shard) {
    return read_safetensors(shard).tensors;
  });
}

std::string reading(const std::string& path) {
  return words_of([&] { read_checkpoint_file(path); });
}

FOLDER_TEST(
    "a module is saved to and loaded from several files by their index") {
  const auto saved = net();
  save_checkpoint(folder / kIndex, *saved);
  REQUIRE(folder.names() == Names{"model-00001-of-00001.safetensors", kIndex});
  for (const bool mapped : {false, true}) {
    auto loaded = net();
    load_checkpoint(folder / kIndex, *loaded, {}, LoadOptions().mmap(mapped));
    for (const auto& item : saved->named_parameters()) {
      REQUIRE(loaded->named_parameters()[item.key()].equal(item.value()));
    }
  }
}

FOLDER_TEST("files of an index are as large as they may be") {
  write_sharded_safetensors(folder / kIndex, tensors(1), 32);
  const auto shard = [&](int number) {
    return read_safetensors(
               folder /
               ("model-0000" + std::to_string(number) +
                "-of-00003.safetensors"))
        .tensors.keys();
  };
  using Keys = std::vector<std::string>;
  REQUIRE(shard(1) == Keys{"d", "a"});
  REQUIRE(shard(2) == Keys{"c"}); // larger than the limit
  REQUIRE(shard(3) == Keys{"b"});
  REQUIRE(equal(tensors_of(folder / kIndex), tensors(1)));
}

FOLDER_TEST("the files of an index are replaced as a whole or not at all") {
  write_sharded_safetensors(folder / kIndex, tensors(1), 32);
  const auto before = folder.names();
  auto bad = tensors(2);
  bad.insert("e", torch::ones({2}, torch::kComplexDouble));
  REQUIRE_THROWS_WITH(
      write_sharded_safetensors(folder / kIndex, bad, 32), Has("'e'"));
  REQUIRE(folder.names() == before);
  REQUIRE(equal(tensors_of(folder / kIndex), tensors(1)));

  write_text(folder / "model-notes.txt", "not ours");
  write_sharded_safetensors(folder / kIndex, tensors(2), 64);
  REQUIRE(equal(tensors_of(folder / kIndex), tensors(2)));
  REQUIRE(
      folder.names() ==
      Names{
          "model-00001-of-00002.safetensors",
          "model-00002-of-00002.safetensors",
          "model-notes.txt",
          kIndex});
  write_sharded_safetensors(folder / kIndex, tensors(3), 64);
  REQUIRE(folder.names().count("model-2-00001-of-00002.safetensors") == 1);
  REQUIRE(folder.names().count("model-00001-of-00002.safetensors") == 0);
}

FOLDER_TEST("where an index cannot be put in its place its files go again") {
  std::filesystem::create_directory(folder / kIndex);
  REQUIRE_THROWS_WITH(
      write_sharded_safetensors(folder / kIndex, tensors(1), 32), Has(kIndex));
  REQUIRE(folder.names() == Names{kIndex});
}

FOLDER_TEST("what is wrong with an index is said") {
  write_sharded_safetensors(folder / kIndex, tensors(1));
  const std::string shard = "model-00001-of-00001.safetensors";
  const auto complaint = [&](const std::string& text) {
    write_text(folder / kIndex, text);
    return reading(folder / kIndex);
  };
  CHECK_THAT(complaint("{"), Has("no JSON object 'weight_map'"));
  CHECK_THAT(
      complaint("{\"weight_map\":[1]}"), Has("no JSON object 'weight_map'"));
  CHECK_THAT( // no recursion may overflow the stack
      complaint(
          "{\"weight_map\":{\"a\":" + std::string(200000, '[') +
          std::string(200000, ']') + "}}"),
      Has("no JSON object 'weight_map'"));
  for (const std::string file : {"\"../a.safetensors\"", "\"\"", "7"}) {
    CHECK_THAT(
        complaint("{\"weight_map\":{\"a\":" + file + "}}"),
        Has("for tensor 'a'"));
  }
  CHECK_THAT(
      complaint("{\"weight_map\":{\"z\":\"" + shard + "\"}}"),
      Has("tensor 'z'", shard));
  CHECK_THAT(
      complaint("{\"weight_map\":{\"a\":\"gone.safetensors\"}}"),
      Has("gone.safetensors"));
}

FOLDER_TEST("one of the files of an index is not taken for all") {
  auto module = net();
  StateDict state;
  for (const auto& item : module->named_parameters()) {
    state.insert(item.key(), item.value());
  }
  for (const std::string stem : {"model", "model-2"}) { // of two saves
    write_sharded_safetensors(folder / kIndex, state, 64);
    const auto file = stem + "-00001-of-00002.safetensors";
    REQUIRE_THROWS_WITH(
        load_checkpoint(folder / file, *module),
        Has(file + "' is file 1 of 2; load '" + (folder / kIndex) +
            "' to read all files. This file alone does not fit"));
  }
}

FOLDER_TEST("an index is not written through a link") {
  write_sharded_safetensors(folder / kIndex, tensors(1));
  std::filesystem::create_directory(folder / "links");
  std::filesystem::create_symlink("../" + kIndex, folder / "links/" + kIndex);
  const auto before = folder.names();
  REQUIRE_THROWS_WITH(
      write_sharded_safetensors(folder / "links/" + kIndex, tensors(2)),
      Has("links/" + kIndex + "': it is a symbolic link", "remove the link"));
  REQUIRE(folder.names() == before);
  REQUIRE(equal(tensors_of(folder / kIndex), tensors(1)));
}

FOLDER_TEST("what is no dict of tensors needs one file") {
  REQUIRE_THROWS_WITH(
      write_checkpoint_file(folder / kIndex, 3), Has("only a dict of tensors"));
  REQUIRE(folder.names().empty());
}

FOLDER_TEST("Python reads the files of an index, and its own are read") {
  write_sharded_safetensors(folder / kIndex, tensors(1), 32);
  python_output(
      {"-c",
       R"(
import json, pathlib, sys, torch
from safetensors.torch import load_file, save_file
folder = pathlib.Path(sys.argv[1])
path = folder / "model.safetensors.index.json"
index = json.loads(path.read_text())
assert index["metadata"]["total_size"] == 80, index
files = {f: load_file(folder / f) for f in set(index["weight_map"].values())}
seen = {n: files[f][n] for n, f in index["weight_map"].items()}
assert sorted(seen) == sorted(n for f in files.values() for n in f)
assert seen["c"].tolist() == [3.0] * 10 and seen["b"].tolist() == [7], seen
save_file({"x": torch.arange(3)}, folder / "own-1.safetensors")
save_file({"y": torch.ones(2)}, folder / "own-2.safetensors")
(folder / "own.safetensors.index.json").write_text(json.dumps({
    "metadata": {}, "weight_map": {
        "y": "own-2.safetensors", "x": "own-1.safetensors"}}))
)",
       folder.path()});
  StateDict expected;
  expected.insert("x", torch::arange(3));
  expected.insert("y", torch::ones({2}));
  REQUIRE(equal(tensors_of(folder / "own.safetensors.index.json"), expected));
}

} // namespace ddp::test::safetensors_index_test
