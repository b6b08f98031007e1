#include <checkpoint/prepared_file.h>
#include <ddp/ddp.h>
#include <ddp/support/containers.h>
#include <ddp/support/snapshot_memory.h>
#include <tests/support/catch.h>
#include <tests/support/ivalue_text.h>

namespace ddp::test::checkpoint_file_test {

using c10::IValue;
using detail::new_dict;

const std::vector<std::string> kFormats{".pt", ".pth", ".safetensors"};

IValue small_value() {
  constexpr auto kInfinity = std::numeric_limits<double>::infinity();
  return dict(
      {{"model", dict({{"w", torch::arange(3.0)}, {"b.c", torch::ones({})}})},
       {"model.w", torch::tensor({7})}, // the same name again, when joined
       {"state", dict({{0, dict({{"step", torch::zeros({0, 2})}})}})},
       {"values",
        list(
            {{},
             true,
             int64_t{1} << 62,
             -1.0,
             kInfinity,
             -kInfinity,
             std::nan(""),
             1e-310,
             "\u00fc"})},
       {"pair", c10::ivalue::Tuple::create({1, dict({})})}});
}

std::string complaint(const std::string& path) {
  return words_of([&] { read_checkpoint_file(path); });
}

torch::nn::Sequential net() {
  return torch::nn::Sequential(
      torch::nn::Linear(2, 3), torch::nn::ReLU(), torch::nn::Linear(3, 1));
}

IValue state_of(
    const torch::nn::Sequential& module,
    const std::string& prefix) {
  auto state = new_dict();
  for (const auto& entry : module->named_parameters()) {
    state.insert(prefix + entry.key(), entry.value().detach());
  }
  return state;
}

bool equal(const torch::nn::Sequential& a, const torch::nn::Sequential& b) {
  return text_of(state_of(a, "")) == text_of(state_of(b, ""));
}

FOLDER_TEST("a tree of values is the same in each format") {
  for (const auto& format : kFormats) {
    const auto path = folder / ("a" + format);
    write_checkpoint_file(path, small_value());
    for (const bool map : {false, true}) {
      const auto read = read_checkpoint_file(path, LoadOptions().mmap(map));
      CHECK(text_of(read) == text_of(small_value()));
    }
    // The content determines the format, whatever the name.
    std::filesystem::create_symlink(path, folder / ("latest" + format + "x"));
    const auto linked =
        read_checkpoint_file(folder / ("latest" + format + "x"));
    CHECK(text_of(linked) == text_of(small_value()));
    verify_checkpoint_file(path);
  }
  const auto flat = read_safetensors(folder / "a.safetensors");
  CHECK(
      flat.tensors.keys() ==
      std::vector<std::string>{
          "model.w", "model.b.c", "model.w'", "state.0.step"});
}

FOLDER_TEST("a mapped file is not written to") {
  for (const auto& format : kFormats) {
    const auto path = folder / ("a" + format);
    write_checkpoint_file(path, dict({{"w", torch::ones({1000})}}));
    const auto before = read_text(path);
    auto tensor = read_checkpoint_file(path, LoadOptions().mmap(true))
                      .toGenericDict()
                      .at("w")
                      .toTensor();
    tensor.add_(1);
    CHECK(tensor.sum().item<float>() == 2000);
    CHECK(read_text(path) == before);
    // Another file replaces it.
    write_checkpoint_file(path, dict({{"w", torch::zeros({5})}}));
    CHECK(tensor.sum().item<float>() == 2000);
  }
}

FOLDER_TEST("a safetensors file's tree is checked") {
  const auto path = folder / "a.safetensors";
  const auto reading = [&](const std::string& tree) {
    write_safetensors(path, StateDict(), {{"ddp.tree", tree}});
    return complaint(path);
  };
  CHECK(reading("[1,2]").empty());
  CHECK_THAT(reading("{"), Has("does not describe a tree of values"));
  CHECK_THAT(
      reading("{\"tensor\":1}"), Has("does not describe a tree of values"));
  CHECK_THAT(reading("{\"tensor\":\"w\"}"), Has("no tensor 'w'"));
  CHECK_THAT(reading("{\"a\":1}"), Has("unknown object 'a'"));
  CHECK_THAT(reading("{}"), Has("an object has 0 keys"));
  CHECK_THAT(reading("{\"tuple\":1}"), Has("expected an array"));
  CHECK_THAT(reading("{\"dict\":[1]}"), Has("not a pair of key and value"));
  CHECK_THAT(reading("{\"dict\":[[1,1],[1,1]]}"), Has("the key 1 twice"));
  CHECK_THAT(
      reading(std::string(200, '[') + std::string(200, ']')),
      Has("nested more than"));
  std::string lists = "[[]";
  for (int i = 0; i < 1'000'000; ++i) { // of 256 bytes each
    lists += ",[]";
  }
  CHECK_THAT(reading(lists + "]"), Has("need far more memory"));
}

FOLDER_TEST("the deepest tree that is written is read") {
  for (const auto& format : kFormats) {
    const auto path = folder / ("deep" + format);
    IValue value = torch::ones({2});
    for (int i = 0; i < 100; ++i) {
      value = list({value});
    }
    write_checkpoint_file(path, value);
    REQUIRE(complaint(path).empty());
    REQUIRE_THROWS_WITH(
        write_checkpoint_file(path, list({value})), Has("more than 100"));
  }
}

FOLDER_TEST("a module's weights are found in a training's file") {
  const auto saved = net();
  const auto other = net();
  const auto loads = [&](const IValue& content, const std::string& entry = "") {
    auto loaded = net();
    write_checkpoint_file(folder / "a.pt", content);
    load_checkpoint(folder / "a.pt", *loaded, {}, LoadOptions().entry(entry));
    return equal(loaded, saved);
  };
  const auto state = state_of(saved, "");
  const auto others = state_of(other, "");
  CHECK(loads(state));
  CHECK(loads(state_of(saved, "module.")));
  CHECK(loads(dict({{"model", state}, {"epoch", 3}})));
  CHECK(loads(dict({{"anything", state}, {"loss", 0.5}})));
  CHECK(loads(dict({{"anything", state}})));
  CHECK(loads(dict({{"model", state_of(saved, "module.")}, {"ema", others}})));
  CHECK(loads(dict({{"model", state}, {"best", torch::zeros({})}})));
  CHECK(loads(dict({{"module", state}, {"best", torch::zeros({})}})));
  CHECK(loads(dict({{"module", state}, {"ema", others}})));
  const auto loader = dict({{"samples_done", torch::zeros({})}});
  CHECK(loads(dict({{"gpt", state}, {"loader", loader}, {"epoch", 1}})));
  CHECK(loads(dict({{"a", others}, {"b", state}, {"epoch", 1}}), "b"));
  CHECK_FALSE(loads(dict({{"a", others}, {"b", state}, {"epoch", 1}}), "a"));
  CHECK_THROWS_WITH(
      loads(dict({{"a", others}, {"b", state}, {"epoch", 1}})),
      Has("2 entries that can be", "\n  b"));
  CHECK_THROWS_WITH(loads(dict({{"epoch", 1}})), Has("0 entries"));
  CHECK_THROWS_WITH(
      loads(dict({{"model", state}, {"epoch", 1}}), "net"),
      Has("no entry 'net'"));
  CHECK_THROWS_WITH(loads(3), Has("no dict of named tensors"));
}

FOLDER_TEST("values that are no tensors hide no entry of a file") {
  const auto saved = net();
  const auto lenient = LoadOptions().strict(false);
  const auto loads = [&](const IValue& content,
                         const IncompatibleKeys& unread,
                         const LoadOptions& options) {
    auto loaded = net();
    write_checkpoint_file(folder / "a.pt", content);
    const auto keys = load_checkpoint(folder / "a.pt", *loaded, {}, options);
    return equal(loaded, saved) && keys.missing_keys == unread.missing_keys &&
        keys.unexpected_keys == unread.unexpected_keys;
  };
  auto state = state_of(saved, "").toGenericDict();
  state.insert("2._extra_state", IValue());
  const auto others = state_of(net(), "");
  const auto run = dict({{"model", state}, {"ema", others}, {"epoch", 3}});
  const auto inner = dict({{"a", state}, {"args", dict({{"lr", 0.1}})}});
  const IncompatibleKeys extra{{}, {"2._extra_state"}};
  CHECK(loads(state, extra, lenient)); // a file of weights
  CHECK(loads(run, extra, lenient));
  CHECK(loads(inner, extra, lenient));
  CHECK(loads(inner, extra, LoadOptions(lenient).entry("a")));
  for (const auto& content : {IValue(state), IValue(run), IValue(inner)}) {
    CHECK_THROWS_WITH(
        loads(content, {}, {}), Has("unexpected in the file: 2._extra_state"));
  }
  // Neither is preferred.
  CHECK_THROWS_WITH(
      loads(dict({{"a", state}, {"b", others}}), {}, lenient),
      Has("2 entries that can be", "\n  a\n  b"));
  // A dict of other tensors and numbers is no candidate.
  const auto buckets = dict({{"error", torch::ones({2})}, {"step", 1}});
  CHECK(loads(dict({{"a", state}, {"reducer", buckets}}), extra, lenient));
}

FOLDER_TEST("LibTorch's own file of a module is loaded") {
  const auto saved = net();
  torch::save(saved, folder / "a.pt");
  auto loaded = net();
  load_checkpoint(folder / "a.pt", *loaded);
  CHECK(equal(loaded, saved));
}

FOLDER_TEST("a file holds tensors as they read, whatever their memory holds") {
  const auto numbers = torch::arange(1, 13, torch::kFloat).view({3, 4});
  const auto complex = torch::complex(numbers, -numbers);
  const auto negative = torch::imag(complex.conj());
  REQUIRE(negative.is_neg());
  const auto value = dict({
      {"conjugate", complex.conj()},
      {"part of a conjugate", complex.conj().slice(0, 1).slice(1, 1, 3)},
      {"transposed conjugate", complex.mH()},
      {"negative", negative},
      {"part of a negative", negative.slice(0, 1)},
      {"negative in place", torch::_neg_view(numbers)},
      {"expanded", torch::tensor({1.5F, 2.5F}).expand({3, 2})},
      {"expanded number", torch::tensor(1.5F).expand({4})},
      {"expanded negative", torch::_neg_view(torch::ones({1})).expand({3})},
      {"offset", numbers.slice(0, 1).slice(1, 2)},
      {"overlapping", numbers.flatten().unfold(0, 4, 2)},
      {"zero", torch::_efficientzerotensor({2, 3}, torch::kFloat)},
  });
  for (const auto& format : kFormats) {
    for (const bool snapshot : {false, true}) {
      const auto path = folder / ("a" + format);
      detail::SnapshotMemory memory;
      memory.begin();
      detail::prepare_checkpoint_file(
          path, value, snapshot ? &memory : nullptr)();
      const auto read = read_checkpoint_file(path).toGenericDict();
      for (const auto& entry : value) {
        INFO(entry.key().toStringRef() << " in " << path);
        REQUIRE(torch::equal(
            read.at(entry.key()).toTensor(), entry.value().toTensor().clone()));
      }
    }
  }
}

FOLDER_TEST("tensors that have no memory of their own values are refused") {
  const auto nested = torch::_nested_tensor_from_tensor_list(
      {torch::ones({2})}, {}, {}, {}, {});
  const std::vector<std::pair<at::Tensor, const char*>> tensors{
      {torch::eye(3).to_sparse(), "layout Sparse"},
      {torch::eye(3).to_sparse_csr(), "layout SparseCsr"},
      {torch::empty({2}, torch::kMeta), "on 'meta'"},
      {torch::quantize_per_tensor(torch::ones(2), 1, 0, torch::kQInt8),
       "QInt8"},
      {nested, "nested"},
      {torch::_add_batch_dim(torch::ones({2, 3}), 0, 1), "wraps another"},
  };
  for (const auto& format : kFormats) {
    for (const bool snapshot : {false, true}) {
      for (const auto& [tensor, reason] : tensors) {
        const auto path = folder / ("a" + format);
        detail::SnapshotMemory memory;
        memory.begin();
        INFO(reason << " in " << path);
        const auto text = words_of([&, &x = tensor] {
          detail::prepare_checkpoint_file(
              path, dict({{"layer.x", x}}), snapshot ? &memory : nullptr)();
        });
        CHECK_THAT(text, Has(reason, "layer.x"));
      }
    }
  }
  CHECK(folder.names().empty());
}

} // namespace ddp::test::checkpoint_file_test
