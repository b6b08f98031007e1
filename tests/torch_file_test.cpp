#include <ddp/ddp.h>
#include <tests/support/launched.h>
#include <tests/support/torch_zip.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/serialize.h>

namespace ddp::test::torch_file_test {

c10::IValue tuple(std::vector<c10::IValue> items) {
  return c10::ivalue::Tuple::create(std::move(items));
}

const auto kScript = parity_program("torch_file_check.py");

// The error of reading the file, or an empty string.
std::string complaint(const std::string& path) {
  return words_of([&] { read_checkpoint_file(path); });
}

const std::vector<torch::Dtype> kDtypes{
    torch::kFloat64,         torch::kFloat32,
    torch::kFloat16,         torch::kBFloat16,
    torch::kInt64,           torch::kInt32,
    torch::kInt16,           torch::kInt8,
    torch::kUInt8,           torch::kBool,
    torch::kComplexFloat,    torch::kComplexDouble,
    torch::kComplexHalf,     torch::kUInt16,
    torch::kUInt32,          torch::kUInt64,
    torch::kFloat8_e5m2,     torch::kFloat8_e4m3fn,
    torch::kFloat8_e5m2fnuz, torch::kFloat8_e4m3fnuz,
    torch::kFloat8_e8m0fnu,
};

// Random bits of every dtype.
c10::IValue every_dtype() {
  auto values = dict({});
  for (const auto dtype : kDtypes) {
    const auto size = static_cast<int64_t>(c10::elementSize(dtype));
    auto bits = torch::randint(
        dtype == torch::kBool ? 2 : 256, {3, size}, torch::kUInt8);
    values.insert(c10::toString(dtype), bits.view(dtype));
  }
  return values;
}

c10::IValue shapes() {
  const auto base = torch::rand({4, 6});
  const auto complex = torch::complex(base, base);
  return dict({
      {"base", base},
      {"transposed", base.t()},
      {"strided", base.slice(0, 1).slice(1, 0, 6, 2)},
      {"expanded", torch::rand({1, 2}).expand({3, 2})},
      {"scalar", torch::tensor(2.5)},
      {"empty", torch::empty({0})},
      {"empty too", torch::empty({2, 0, 3}, torch::kLong)},
      {"empty, at an offset", torch::empty({0, 8}).chunk(2, 1)[1]},
      {"empty part", base.slice(0, 4).slice(1, 3)},
      {"part of odd bytes",
       torch::arange(5, torch::kByte).slice(0, 0, 4).view(torch::kUInt16)},
      {"conjugate", complex.conj()},
      {"negative", torch::imag(complex.conj())},
      {"requires grad", torch::rand({2}).requires_grad_()},
      {"small part", torch::rand({1000, 10}).select(1, 3).slice(0, 5, 8)},
  });
}

c10::IValue plain() {
  using Limits = std::numeric_limits<int64_t>;
  return dict({
      {"none", {}},
      {"bools", list({true, false})},
      {"ints",
       list(
           {0,
            255,
            65536,
            int64_t{1} << 31,
            -(int64_t{1} << 31),
            Limits::max(),
            Limits::min()})},
      {"floats",
       tuple({0.0, -0.0, 1.5, std::numeric_limits<double>::infinity()})},
      {"strings", list({"", "a", "\u00fc\u20ac\U0001F600", std::string(1, 0)})},
      {"nested", dict({{"a", list({tuple({}), tuple({1, dict({})})})}})},
      {"typed",
       tuple(
           {c10::List<int64_t>({1, 2}),
            c10::List<double>({0.5}),
            c10::List<at::Tensor>({torch::rand({2})})})},
      {3, "three"},
      {-(int64_t{1} << 40), "far"},
  });
}

FOLDER_TEST("read_checkpoint_file reads what torch.save wrote") {
  python_output({kScript, "write", folder.path()});
  size_t files = 0;
  for (const auto& name : folder.names()) {
    const std::filesystem::path text = folder / name;
    if (text.extension() != ".txt") {
      continue;
    }
    INFO(name);
    auto path = text;
    path.replace_extension(".pt");
    REQUIRE(text_of(read_checkpoint_file(path.string())) == read_text(text));
    ++files;
  }
  CHECK(files == 4 * 11 + 1);
}

TEST_CASE("read_checkpoint_file refuses Python's other values") {
  // Of pickle protocol 2 and 5, where they differ.
  const std::map<std::string, std::vector<std::string>> expected{
      {"set", {"'__builtin__.set'", "it has a set"}},
      {"frozenset", {"'__builtin__.frozenset'", "it has a frozenset"}},
      {"bytes", {"'_codecs.encode'", "it has bytes"}},
      {"bytearray", {"'__builtin__.bytearray'", "it has a bytearray"}},
      {"complex", {"'__builtin__.complex'", "'builtins.complex'"}},
      {"large", {"an integer of more than 64 bits"}},
      {"dtype", {"contains 'torch.float32'"}},
      {"device", {"'torch.device'"}},
      {"storage", {"contains a storage"}},
      {"sparse", {"'torch._utils._rebuild_sparse_tensor'"}},
      {"quantized", {"'torch._utils._rebuild_qtensor'"}},
      {"meta", {"'torch._utils._rebuild_meta_tensor_no_storage'"}},
      {"module", {"'torch.nn.modules.linear.Linear'"}},
      {"defaultdict", {"'collections.defaultdict'"}},
      {"float key", {"a key of type Double"}},
      {"tuple key", {"a key of type Tuple"}},
      {"none key", {"a key of type None"}},
      {"bool key", {"a key of type Bool"}},
      {"subclass", {"'__main__.Own'"}},
      {"function", {"'torch.nn.functional.relu'"}},
  };
  const TemporaryFolder folder;
  python_output({kScript, "refused", folder.path()});
  for (const auto& [name, texts] : expected) {
    for (const std::string protocol : {"2", "5"}) {
      const auto path = folder / (name + " " + protocol + ".pt");
      CHECK_THAT(
          complaint(path),
          Has(protocol == "2" ? texts.front() : texts.back(), path));
      // The file is intact, and all but the value can be read.
      CHECK_NOTHROW(verify_checkpoint_file(path));
      const auto rest = read_checkpoint_file(path, LoadOptions().strict(false));
      const bool is_dict = name.find(" key") != std::string::npos;
      CHECK(text_of(rest) == (is_dict ? " dict 1\n/x dict 0\n" : " dict 0\n"));
    }
  }
  // As torchvision's reference scripts write it.
  const auto script = folder / "reference script.pt";
  CHECK_THAT(
      complaint(script),
      Has("'argparse.Namespace'", "LoadOptions().strict(false)"));
  CHECK_NOTHROW(verify_checkpoint_file(script));
  torch::nn::Linear net(2, 2);
  const auto keys =
      load_checkpoint(script, *net, {}, LoadOptions().strict(false));
  CHECK(keys.missing_keys.empty());
  CHECK(keys.unexpected_keys.empty());
  // The other entry is not loaded in place of one that cannot be read.
  const auto load_own = [&](const std::string& name) {
    load_checkpoint(
        folder / "own dict.pt",
        *net,
        {},
        LoadOptions().strict(false).entry(name));
  };
  CHECK_THROWS_WITH(
      load_own(""), Has("entry 'model' has a class", "select another entry"));
  CHECK_NOTHROW(load_own("ema"));
  CHECK_THAT(
      complaint(folder / "before 1.6.pt"),
      Has("format of torch.save before version 1.6"));
  CHECK_THAT(
      complaint(folder / "torchscript.pt"),
      Has("'__torch__.torch.nn.modules.linear.Linear'"));
}

FOLDER_TEST("read_checkpoint_file reads what LibTorch wrote") {
  const auto path = folder / "a.pt";
  const auto x = torch::rand({2, 3});
  torch::serialize::OutputArchive inner, archive;
  inner.write("x", x);
  archive.write("inner", inner);
  archive.write("number", c10::IValue(3));
  archive.write("text", c10::IValue("abc"));
  archive.write("sizes", c10::IValue(std::vector<int64_t>{1, 2}));
  archive.write("flags", c10::IValue(c10::List<bool>({true, false})));
  archive.write("pair", tuple({0.5, 1}));
  archive.save_to(path);
  CHECK(
      text_of(read_checkpoint_file(path)) ==
      text_of(dict({
          {"inner", dict({{"x", x}})},
          {"number", 3},
          {"text", "abc"},
          {"sizes", list({1, 2})},
          {"flags", list({true, false})},
          {"pair", tuple({0.5, 1})},
      })));

  torch::nn::Sequential net(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3));
  torch::optim::Adam optimizer(net->parameters(), 0.1);
  net->forward(torch::rand({4, 2})).square().sum().backward();
  optimizer.step();
  torch::save(net, path);
  const auto module = read_checkpoint_file(path);
  CHECK(entry(module, "0", "weight")
            .toTensor()
            .equal(net[0]->as<torch::nn::Linear>()->weight));
  CHECK(entry(module, "1", "running_var")
            .toTensor()
            .equal(net[1]->as<torch::nn::BatchNorm1d>()->running_var));
  torch::save(optimizer, path);
  const auto groups = entry(read_checkpoint_file(path), "param_groups");
  CHECK(entry(groups, "param_groups/0", "options", "lr").toDouble() == 0.1);
  torch::save(x, path);
  CHECK(text_of(read_checkpoint_file(path)) == text_of(dict({{"0", x}})));
}

FOLDER_TEST("Tensors that shared memory share it again") {
  const auto path = folder / "a.pt";
  const auto base = torch::arange(6, torch::kFloat).reshape({2, 3});
  write_checkpoint_file(
      path, dict({{"a", base}, {"b", base.t()}, {"c", base[1]}}));
  const auto read = read_checkpoint_file(path);
  entry(read, "a").toTensor().fill_(7);
  CHECK(torch::equal(entry(read, "b").toTensor(), torch::full({3, 2}, 7.F)));
  CHECK(torch::equal(entry(read, "c").toTensor(), torch::full({3}, 7.F)));
}

FOLDER_TEST("A small part of a large tensor is written alone") {
  const auto path = folder / "a.pt";
  const auto large = torch::rand({1000, 100});
  write_checkpoint_file(path, list({large[3], large[4]}));
  CHECK(std::filesystem::file_size(path) < 10'000);
  const auto read = read_checkpoint_file(path).toList();
  CHECK(torch::equal(read.get(0).toTensor(), large[3]));
  CHECK(torch::equal(read.get(1).toTensor(), large[4]));
  // One storage as two dtypes, which Python could not write at all.
  const auto bits = torch::rand({4});
  write_checkpoint_file(path, list({bits, bits.view(torch::kInt)}));
  const auto both = read_checkpoint_file(path).toList();
  CHECK(torch::equal(both.get(0).toTensor(), bits));
  CHECK(torch::equal(both.get(1).toTensor(), bits.view(torch::kInt)));
}

FOLDER_TEST("write_checkpoint_file keeps every value, bit by bit") {
  const auto path = folder / "a.pt";
  for (const auto& value :
       {every_dtype(), shapes(), plain(), c10::IValue(7), c10::IValue()}) {
    write_checkpoint_file(path, value);
    REQUIRE(text_of(read_checkpoint_file(path)) == text_of(value));
  }
  CHECK(folder.names() == std::set<std::string>{"a.pt"});
  const auto first = read_text(path);
  write_checkpoint_file(path, {});
  CHECK(read_text(path) == first);
}

FOLDER_TEST("Python reads what write_checkpoint_file wrote") {
  const auto shared = torch::rand({3});
  const auto as_integers = shared.view(torch::kInt);
  const std::vector<std::pair<std::string, c10::IValue>> values{
      {"dtypes.pt", every_dtype()},
      {"shapes.pt", shapes()},
      {"plain.pt", plain()},
      {"tensor.pt", torch::rand({3})},
      {"number.pt", 7},
      {"bits.pt", list({shared, as_integers, shared.slice(0, 1)})},
      {"shared.pt", dict({{"shared", tuple({shared, shared})}})},
  };
  Words arguments{kScript, "read"};
  std::string expected;
  for (const auto& [name, value] : values) {
    write_checkpoint_file(folder / name, value);
    arguments.push_back(folder / name);
    expected += text_of(value);
  }
  const auto output = python_output(arguments); // or the test is skipped
  CHECK(output == expected + "shares True\n");
}

FOLDER_TEST("write_checkpoint_file refuses what no file can have") {
  const auto path = folder / "a.pt";
  const auto rejected = [&](const c10::IValue& value) {
    return words_of([&] {
      write_checkpoint_file(path, dict({{"x", list({value})}}));
    });
  };
  CHECK_THAT(rejected(at::Tensor()), Has("'x.0' is an undefined tensor"));
  CHECK_THAT(rejected("\xff"), Has("not UTF-8"));
  CHECK_THAT(rejected(c10::Device("cpu")), Has("is of type Device"));
  CHECK_THAT(rejected(dict({{0.5, 1}})), Has("a key of type Double"));
  auto cycle = list({});
  cycle.push_back(cycle);
  cycle.push_back(cycle);
  CHECK_THAT(rejected(cycle), Has("contain themselves"));
  CHECK(folder.names().empty());
  cycle.clear();
}

TEST_CASE("A file can have further records") {
  const auto text =
      zip_of({{"a/data.pkl", "\x80\2K\7."}, {"a/ddp/more", "0123"}});
  const detail::MemorySource bytes(text.data(), text.size());
  const detail::TorchArchive archive(bytes);
  CHECK(archive.record("ddp/more") == "0123");
  CHECK(archive.record("ddp/other") == std::nullopt);
  CHECK(archive.value().toInt() == 7);
}

} // namespace ddp::test::torch_file_test
