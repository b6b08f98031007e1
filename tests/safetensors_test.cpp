#include <ddp/checkpoint/checkpoint_file.h>
#include <tests/support/ivalue_text.h>
#include <tests/support/launched.h>

namespace ddp::test::safetensors_test {

const std::vector<std::pair<std::string, torch::Dtype>> kDtypes{
    {"F64", torch::kFloat64},
    {"F32", torch::kFloat32},
    {"F16", torch::kFloat16},
    {"BF16", torch::kBFloat16},
    {"F8_E4M3", torch::kFloat8_e4m3fn},
    {"F8_E5M2", torch::kFloat8_e5m2},
    {"F8_E4M3FNUZ", torch::kFloat8_e4m3fnuz},
    {"F8_E5M2FNUZ", torch::kFloat8_e5m2fnuz},
    {"F8_E8M0", torch::kFloat8_e8m0fnu},
    {"I64", torch::kInt64},
    {"I32", torch::kInt32},
    {"I16", torch::kInt16},
    {"I8", torch::kInt8},
    {"U64", torch::kUInt64},
    {"U32", torch::kUInt32},
    {"U16", torch::kUInt16},
    {"U8", torch::kUInt8},
    {"BOOL", torch::kBool},
    {"C64", torch::kComplexFloat},
};

StateDict every_dtype() {
  StateDict tensors;
  for (const auto& [name, dtype] : kDtypes) {
    tensors.insert(name, torch::arange(6).reshape({2, 3}).to(dtype));
  }
  return tensors;
}

std::string bytes_of(const torch::Tensor& tensor) {
  const auto plain = tensor.contiguous();
  const auto* data = static_cast<const char*>(plain.const_data_ptr());
  return {data, data + plain.nbytes()};
}

void require_equal(const StateDict& seen, const StateDict& expected) {
  REQUIRE(seen.keys() == expected.keys());
  for (const auto& item : expected) {
    INFO(item.key());
    const auto& tensor = seen[item.key()];
    REQUIRE(tensor.scalar_type() == item->scalar_type());
    REQUIRE(tensor.sizes() == item->sizes());
    REQUIRE(bytes_of(tensor) == bytes_of(item.value()));
  }
}

// The error of reading the file, or an empty string.
std::string complaint(const std::string& path) {
  return words_of([&] { read_safetensors(path); });
}

std::string entry(
    const std::string& name,
    const std::string& dtype,
    const std::string& shape,
    const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
      ",\"data_offsets\":" + offsets + "}";
}

FOLDER_TEST("safetensors keeps every dtype and shape, bit by bit") {
  const auto path = folder / "a.safetensors";
  auto tensors = every_dtype();
  tensors.insert(
      "odd",
      torch::tensor(
          {std::numeric_limits<float>::quiet_NaN(),
           -0.0F,
           std::numeric_limits<float>::infinity(),
           std::numeric_limits<float>::denorm_min()}));
  const auto base = torch::arange(24, torch::kFloat).reshape({4, 6});
  tensors.insert("transposed", base.t());
  tensors.insert("strided", base.slice(1, 1, 6, 2));
  tensors.insert("same storage", base);
  tensors.insert("again", base);
  tensors.insert("scalar", torch::tensor(3));
  tensors.insert("empty", torch::empty({0}));
  tensors.insert("empty too", torch::empty({2, 0, 3}, torch::kLong));
  tensors.insert("requires grad", torch::ones({2}).requires_grad_());
  tensors.insert("", torch::ones({1}));
  tensors.insert("\"\\\n", torch::ones({1}, torch::kByte));
  const SafetensorsMetadata metadata{{"format", "pt"}, {"\"ü\n", "\\"}};
  write_safetensors(path, tensors, metadata);
  const auto file = read_safetensors(path);
  require_equal(file.tensors, tensors);
  CHECK(file.metadata == metadata);
  CHECK(folder.names() == std::set<std::string>{"a.safetensors"});

  write_safetensors(path, StateDict());
  CHECK(read_safetensors(path).tensors.is_empty());
}

FOLDER_TEST("safetensors refuses what the format has not") {
  const auto path = folder / "a.safetensors";
  const auto rejected = [&](const std::string& name,
                            const torch::Tensor& value) {
    StateDict tensors;
    tensors.insert(name, value);
    return words_of([&] { write_safetensors(path, tensors); });
  };
  CHECK_THAT(
      rejected("layer.w", torch::zeros(2, torch::kComplexDouble)),
      Has("layer.w", "ComplexDouble"));
  CHECK_THAT(rejected("u", {}), Has("'u' is undefined"));
  CHECK_THAT(
      rejected("__metadata__", torch::ones(1)),
      Has("'__metadata__' is not allowed"));
  CHECK_THAT(rejected("\xff", torch::ones(1)), Has("UTF-8"));
  CHECK(folder.names().empty());
}

FOLDER_TEST("safetensors reads other programs' files") {
  const auto path = folder / "a.safetensors";
  write_text(
      path,
      foreign_safetensors(
          "{" + entry("b", "U8", "[2]", "[4,6]") + ",\n" +
              entry("a", "F32", "[]", "[0,4]") + ",\"__metadata__\":{}}  ",
          std::string("\0\0\x80\x3f\x07\x08", 6)));
  const auto file = read_safetensors(path);
  CHECK(file.tensors.keys() == std::vector<std::string>{"b", "a"});
  CHECK(file.tensors["a"].item<float>() == 1);
  CHECK(file.tensors["b"][1].item<int>() == 8);
  // Also metadata that are null.
  write_text(
      path,
      foreign_safetensors(
          "{\"__metadata__\":null," + entry("a", "U8", "[1]", "[0,1]") + "}",
          "x"));
  CHECK(read_safetensors(path).tensors["a"].item<int>() == 'x');
  // A file with ddp's metadata that another program has changed.
  write_text(
      path,
      foreign_safetensors(
          "{\"__metadata__\":{\"ddp.xxh3\":\"0123456789abcdef\"}," +
              entry("a", "U8", "[1]", "[0,1]") + "}",
          "x"));
  CHECK(read_safetensors(path).metadata.empty());
}

TEST_CASE("safetensors says what is wrong with a file") {
  struct Case {
    std::string header, data, expected;
  };
  const auto one = entry("a", "U8", "[2]", "[0,2]");
  const std::vector<Case> cases{
      {"", "", "does not start with '{'"},
      {" {}", "", "does not start with '{'"},
      {"{", "", "not JSON"},
      {"{} x", "", "not JSON"},
      {"{\"\xff\":1}", "", "not JSON"},
      {std::string(100000, '{'), "", "not JSON"},
      {"{\"a\":" + std::string(100000, '[') + "}", "", "nested too deeply"},
      {"{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}",
       "",
       "nested too deeply"},
      {"{" + one + "," + one + "}", "ab", "the key 'a' twice"},
      {"{\"__metadata__\":{\"k\":\"\",\"k\":\"\"}}", "", "'k' twice"},
      {"{\"__metadata__\":{\"k\":1}}", "", "'k' is 1, expected a str"},
      {"{\"__metadata__\":[]}", "", "is not an object"},
      {"{" + entry("a", "F4", "[2]", "[0,1]") + "}", "x", "dtype is 'F4'"},
      {"{\"a\":3}", "", "tensor 'a': its description is 3"},
      {"{\"a\":{}}", "", "no string 'dtype'"},
      {"{" + entry("a", "F7", "[]", "[0,1]") + "}", "x", "dtype is 'F7'"},
      {"{" + entry("a", "U8", "2", "[0,2]") + "}", "ab", "no array 'shape'"},
      {"{" + entry("a", "U8", "[-1]", "[0,2]") + "}", "ab", "-1, expected a"},
      {"{" + entry("a", "U8", "[2.0]", "[0,2]") + "}", "ab", "2.0, expected a"},
      {"{" + entry("a", "U8", "[1e400]", "[0,2]") + "}", "ab", "not JSON"},
      {"{" + entry("a", "U8", "[18446744073709551615]", "[0,2]") + "}",
       "ab",
       "exceeds 63 bits"},
      {"{" + entry("a", "F64", "[4294967296,4294967296]", "[0,2]") + "}",
       "ab",
       "exceeds 63 bits"},
      {"{" + entry("a", "U8", "[0,9223372036854775807,4]", "[0,0]") + "}",
       "",
       "exceeds 63 bits"},
      {"{" + entry("a", "U8", "[2]", "[0]") + "}", "ab", "expected [begin"},
      {"{" + entry("a", "U8", "[2]", "[2,0]") + "}", "ab", "need 2 bytes"},
      {"{" + entry("a", "U8", "[3]", "[0,2]") + "}", "ab", "need 3 bytes"},
      {"{" + entry("a", "U8", "[1]", "[1,2]") + "}", "ab", "begin at byte 1"},
      {"{" + one + "," + entry("b", "U8", "[1]", "[1,2]") + "}",
       "ab",
       "begin at byte 1 of the data, but the preceding data end at 2"},
      {"{" + one + "}",
       "a",
       "truncated: the header describes 2 bytes of data, but the file has 1"},
      {"{" + one + "}",
       "abc",
       "the header describes 2 bytes of data, but the file has 3"},
  };
  const TemporaryFolder folder;
  const auto path = folder / "bad.safetensors";
  for (const auto& c : cases) {
    write_text(path, foreign_safetensors(c.header, c.data));
    INFO(c.header.substr(0, 200));
    CHECK_THAT(complaint(path), Has(c.expected, path));
  }
  write_text(path, "1234567");
  CHECK_THAT(complaint(path), Has("truncated: it has 7 bytes"));
  write_text(path, std::string("\x10\0\0\0\0\0\0\0{}", 10));
  CHECK_THAT(
      complaint(path), Has("its header has 16 bytes, but only 2 follow"));
  write_text(path, std::string(20, 'x'));
  CHECK_THAT(complaint(path), Has("the format allows at most 100000000"));
  CHECK_THAT(complaint(folder / "no"), Has("No such file"));
  CHECK_THAT(complaint(folder.path()), Has("directory"));
}

FOLDER_TEST("safetensors notices bits flipped in large data") {
  const auto path = folder / "a.safetensors";
  StateDict tensors;
  tensors.insert("w", torch::rand({1000, 100}));
  write_safetensors(path, tensors);
  auto text = read_text(path);
  for (size_t i = 0; i < 50; ++i) {
    auto damaged = text;
    auto& byte = damaged[text.size() - 1 - 7919 * i];
    byte = static_cast<char>(byte ^ (1 << i % 8));
    write_text(path, damaged);
    REQUIRE_THAT(complaint(path), Has("corrupt"));
  }
}

FOLDER_TEST("safetensors agrees with Python") {
  const auto path = folder / "a.safetensors";
  const auto script = parity_program("safetensors_check.py");
  python_output({script, "write", path});
  const auto file = read_safetensors(path);
  require_equal(file.tensors, every_dtype());
  CHECK(file.metadata == SafetensorsMetadata{{"by", "Python"}});

  auto tensors = every_dtype();
  tensors.insert("empty", torch::empty({0, 2}));
  tensors.insert("scalar", torch::tensor(2.5));
  write_safetensors(path, tensors, {{"by", "C++"}});
  std::ostringstream expected;
  const auto line = [&](const std::string& name, const std::string& dtype) {
    expected << name << ' ' << dtype;
    for (const auto size : tensors[name].sizes()) {
      expected << ' ' << size;
    }
    const auto bytes = bytes_of(tensors[name]);
    expected << ' ' << hex(bytes.data(), bytes.size()) << '\n';
  };
  for (const auto& [name, dtype] : kDtypes) {
    line(name, name);
  }
  line("empty", "F32");
  line("scalar", "F32");
  expected << "by C++\n";
  CHECK(python_output({script, "read", path}) == expected.str());
}

} // namespace ddp::test::safetensors_test
