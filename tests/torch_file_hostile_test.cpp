#include <tests/support/child.h>
#include <tests/support/torch_zip.h>

namespace ddp::test::torch_file_hostile_test {

using namespace std::string_literals;

std::string repeat(const std::string& text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) {
    result += text;
  }
  return result;
}

struct Case {
  std::string pickle, expected;
};

void check(const std::vector<Case>& cases) {
  for (const auto& c : cases) {
    INFO(c.pickle.substr(0, 200));
    CHECK_THAT(complaint(torch_file_of(c.pickle)), Has(c.expected));
  }
}

TEST_CASE("Files of older versions of torch.save are read") {
  for (const std::string type :
       {"torch\nFloatStorage\n", "torch.cuda\nFloatStorage\n"}) {
    const auto bytes = torch_file_of(call_of(
        kRebuildV2,
        storage_of(type, "0", "K\4") + kZero + "K\2K\2\x86" + "K\2K\1\x86" +
            "\x89" + kOrderedDict));
    CHECK(torch::equal(
        value_of(bytes).toTensor(), torch::tensor({{1.F, 2.F}, {3.F, 4.F}})));
  }
  const auto first = torch_file_of(call_of(
      "torch._utils\n_rebuild_tensor\n",
      storage_of(kFloatStorage, "0", "K\4") + kZero + kFour + kOne));
  CHECK(value_of(first).toTensor().size(0) == 4);
  // Python 2: strings are bytes, and dicts are made from lists of pairs.
  const auto pairs = torch_file_of(
      "ccollections\nOrderedDict\n](](U\1aK\1e](U\1bK\2ee\x85R}" +
      unicode("_metadata") + "}sb");
  CHECK(text_of(value_of(pairs)) == " dict 2\n/a int 1\n/b int 2\n");
  const auto record = [](const std::string& order) {
    return zip_of({{"a/data.pkl", "\x80\2N."}, {"a/byteorder", order}});
  };
  CHECK(complaint(record("little")).empty());
  CHECK_THAT(complaint(record("big")), Has("are big-endian"));
}

TEST_CASE("Names that are not on the list are refused") {
  const auto arguments = unicode("touch /tmp/ddp-hostile");
  check({
      {call_of("os\nsystem\n", arguments), "'os.system'"},
      {call_of("posix\nsystem\n", arguments), "'posix.system'"},
      {call_of("builtins\neval\n", arguments), "'builtins.eval'"},
      {call_of("__builtin__\neval\n", arguments), "'__builtin__.eval'"},
      {call_of("torch.storage\n_load_from_bytes\n", arguments),
       "'torch.storage._load_from_bytes'"},
      {call_of("torch\nos.system\n", arguments), "'torch.os.system'"},
      {call_of("torch._utils\n_rebuild_sparse_tensor\n", ""),
       "_rebuild_sparse_tensor"},
      {unicode("os") + unicode("system") + "\x93" + arguments + "\x85R",
       "'os.system'"},
      {"ios\nsystem\n", "an instance of a class"},
      {"(cos\nsystem\no", "'os.system'"},
      {"ccollections\nOrderedDict\n)\x81",
       "the class 'collections.OrderedDict'"},
      {"c__torch__.os\nModule\n", "'__torch__.os.Module'"},
      {"c__torch__\nModule\n)\x81Nb",
       "attributes of an archive as a dict, found None"},
      {"c__torch__\nModule\n)\x81q\0h\0b"s,
       "of an archive are the archive itself"},
      {"\x82\1", "copyreg"},
      {"P0\n", "a persistent id that is text"},
      {"ctorch\nfloat32\n)R", "torch.float32: this library does not support"},
      {"ctorch\nFloatStorage\n", "contains 'torch.FloatStorage'"},
      {unicode("os.system") + ")R", "expected a function to call"},
      {"\x8f", "a set"},
      {"C\1a", "bytes"},
      {"\x8b\x09\0\0\0"s, "an integer of more than 64 bits"},
      {"\x8a\x09" + std::string(9, '\x7f'), "an integer of more than 64 bits"},
  });
}

TEST_CASE("Entries of unknown classes are left out where that is asked for") {
  const auto unknown = call_of("os\nsystem\n", unicode("touch /tmp/hostile"));
  const auto read = [](const std::string& pickle) {
    const auto bytes = torch_file_of(pickle);
    const detail::MemorySource source(bytes.data(), bytes.size());
    return text_of(detail::TorchArchive(source).value(/*strict=*/false));
  };
  const auto with = [&](const std::string& value) {
    return "}(" + unicode("a") + "K\1" + unicode("b") + value + "u";
  };
  const std::string rest = " dict 1\n/a int 1\n";
  // As an object with attributes, a list, a dict, a name, a type, a storage.
  CHECK(read(with(unknown)) == rest);
  CHECK(
      read(with("cargparse\nNamespace\n)\x81}" + unicode("lr") + "K\1sb")) ==
      rest);
  CHECK(read(with("cmine\nList\n)\x81(K\1K\2e")) == rest);
  CHECK(read(with("cmine\nDict\n)R(K\1K\2u")) == rest);
  CHECK(read(with("cmine\nfunction\n")) == rest);
  CHECK(read(with("ctorch\nfloat32\n")) == rest);
  CHECK(read(with(storage_of(kFloatStorage, "0", "K\4"))) == rest);
  // Inside other values, and shared.
  CHECK(
      read(with(
          "](K\1" + unknown +
          "\x85"
          "e")) == rest);
  CHECK(
      read(
          "}(" + unicode("a") + "]q\1(" + unknown + "e" + unicode("b") + "h\1" +
          unicode("c") + "K\1u") == " dict 1\n/c int 1\n");
  CHECK(
      read(with("}(" + unicode("c") + unknown + unicode("d") + "K\2u")) ==
      " dict 2\n/a int 1\n/b dict 1\n/b/d int 2\n");
  // The value itself is unknown, or depends on the unknown one.
  CHECK_THROWS_WITH(read(unknown), Has("contains 'os.system'"));
  CHECK_THROWS_WITH(read("](" + unknown + "e"), Has("contains 'os.system'"));
  CHECK_THROWS(read(with(call_of(kRebuildV2, unknown))));
  CHECK_THROWS_WITH(read("]q\1h\1a"), Has("contain themselves"));
}

TEST_CASE("Persistent ids are of storages alone") {
  const auto inner = storage_of(kFloatStorage, "0", "K\4");
  check({
      {"K\1Q", "expected a tuple as a persistent id"},
      {unicode("0") + "Q", "expected a tuple as a persistent id"},
      {")Q", "a persistent id has 0 values, expected 5"},
      {"(" + unicode("module") + "NNNNtQ", "has the kind 'module'"},
      {"(" + inner + "NNNNtQ", "kind, found a storage"},
      {"(" + unicode("storage") + "cos\nsystem\n", "'os.system'"},
      {"(" + unicode("storage") + inner + unicode("0") + unicode("cpu") +
           "K\4tQ",
       "type, found a storage"},
      {"(" + unicode("storage") + "c" + kFloatStorage + inner + unicode("cpu") +
           "K\4tQ",
       "key, found a storage"},
      {storage_of("torch\nfloat32\n", "0", "K\4"), "the type torch.float32"},
      {storage_of("torch\nQInt8Storage\n", "0", "K\4"), "torch.QInt8Storage"},
      {storage_of(kFloatStorage, "../../etc/passwd", "K\4"),
       "no record for its storage '../../etc/passwd'"},
      {storage_of(kFloatStorage, "0", "K\5"),
       "has 16 bytes, expected at least 20"},
      {storage_of(kFloatStorage, "0", integer(-1)), "non-negative"},
      {storage_of(kFloatStorage, "0", long_integer(int64_t{1} << 62)),
       "exceeds 64 bits"},
      {storage_of(kFloatStorage, "0", "\x88"), "found a bool"},
      {inner, "contains a storage"},
  });
}

TEST_CASE("Tensors stay within their storage") {
  const auto huge = long_integer(int64_t{1} << 62);
  const auto dimensions = "(" + repeat("K\1", 65) + "t";
  CHECK(complaint(torch_file_of(tensor_of(kZero, kFour, kOne))).empty());
  CHECK(complaint(torch_file_of(tensor_of("K\5", "K\0\x85"s, kOne))).empty());
  check({
      {tensor_of("K\1", kFour, kOne),
       "reaches element 5 of a storage of 4 elements"},
      {tensor_of(kZero, "K\2\x85", "K\4\x85"), "reaches element 5"},
      {tensor_of(integer(-1), kFour, kOne), "offset, found -1"},
      {tensor_of(kZero, integer(-4) + "\x85", kOne), "found -4"},
      {tensor_of("K\3", kFour, integer(-1) + "\x85"), "found -1"},
      {tensor_of(huge, kFour, kOne), "reaches element"},
      {tensor_of(kZero, huge + "\x85", kZero + "\x85"), "2^63 - 1 bytes"},
      {tensor_of(kZero, huge + huge + "\x86", "K\0K\0\x86"s), "2^63 - 1 bytes"},
      {tensor_of(kZero, kFour, huge + "\x85"), "2^63 - 1 bytes"},
      {tensor_of(kZero, "K\0"s + huge + huge + "\x87", "K\1K\1K\1\x87"),
       "2^63 - 1 bytes"},
      {tensor_of(kZero, kFour, ")"), "sizes [4] and strides [], expected"},
      {tensor_of(kZero, dimensions, dimensions), "a tensor has 65 dimensions"},
      {tensor_of("\x88", kFour, kOne), "found a bool"},
      {tensor_of(kZero, "]", kOne), "size, found a list"},
      {tensor_of(kZero, kFour, kOne, "\x89"), "it has 5 arguments"},
      {tensor_of(kZero, kFour, kOne, "NN"), "requires_grad, found"},
      {tensor_of(kZero, kFour, kOne, "\x89}K\1K\1s"), "hooks"},
      {tensor_of(kZero, kFour, kOne, "\x89}}" + unicode("conj") + "\x88s"),
       "metadata has 'conj'"},
      {call_of(
           "torch._utils\n_rebuild_tensor_v3\n",
           storage_of("torch.storage\nUntypedStorage\n", "0", "K\x10") + kZero +
               kFour + kOne + "\x88}ctorch\nint32\n"),
       "cannot require gradients"},
      {call_of(
           "torch._utils\n_rebuild_tensor_v3\n",
           storage_of("torch.storage\nUntypedStorage\n", "0", "K\x10") + kZero +
               kFour + kOne + "\x89}K\1"),
       "expected a dtype"},
      {call_of(kRebuildV2, "K\1" + kZero + kFour + kOne + "\x89}"),
       "expected a storage"},
      {call_of("torch._utils\n_rebuild_parameter\n", "N\x89}"),
       "expected a tensor"},
  });
}

TEST_CASE("Pickles that are no sense are refused") {
  check({
      {"", "the stack has 0 values"},
      {"NN", "leaves 2 values on the stack"},
      {"(N", "leaves 1 values on the stack"},
      {"a", "the stack has 0 values"},
      {"]a", "the stack is empty"},
      {"](a", "the stack has 0 values, the opcode needs 1"},
      {"}Na", "appends to a"},
      {"Nt", "the stack has no mark"},
      {"}(Nu", "a key of a dict has no value"},
      {"](NNu", "sets items of a list"},
      {"]}b", "set attributes of a list"},
      {tensor_of(kZero, kFour, kOne) + ")b", "set attributes of a tensor"},
      {"h\7", "memo index 7 has no value"},
      {"Nr" + u32(0xFFFFFFFF), "memo index 4294967295"},
      {"q\0"s, "the stack is empty"},
      {"X" + u32(0xFFFFFFFF) + "abc", "expected 4294967295 bytes"},
      {"\x8d" + std::string(8, '\xff'), "18446744073709551615 bytes"},
      {"T" + u32(0x80000000), "expected 2147483648 bytes"},
      {"\x8a\xff", "expected 255 bytes"},
      {"\x80\6N", "pickle protocol 6"},
      {"cos", "a name does not end"},
      {"0", "the opcode 48"},
      {"\xff", "the opcode 255"},
      {"}(G" + std::string(8, '\0') + "Nu", "a key of type Double"},
      {"}()Nu", "a key of type Tuple"},
      {"}(NNu", "a key of type None"},
      {"}(K\1NK\1Nu", "the key 1 twice"},
      {"}(" + unicode("a") + "N" + unicode("a") + "Nu", "the key a twice"},
      {"N.", "1 bytes follow its end"},
  });
  CHECK_THAT(
      complaint(zip_of({{"a/data.pkl", "\x80\2N"}})),
      Has("truncated: expected 1 bytes"));
}

TEST_CASE("Values that contain themselves are refused") {
  check({
      {"]q\0h\0a"s, "contain themselves"},
      {"}q\0K\1h\0s"s, "contain themselves"},
      {"]q\0h\0\x85"
       "a"s,
       "contain themselves"},
      {"]q\0(h\0h\0h\0e"s, "contain themselves"},
  });
}

TEST_CASE("Bombs need little memory and time") {
  const auto rejected = [](const std::string& pickle, const char* expected) {
    const auto bytes = torch_file_of(pickle);
    require_in_child(
        400, [&] { REQUIRE_THAT(complaint(bytes), Has(expected)); });
  };
  // Pairs of the same list, 60 deep: 2^60 values if written out.
  std::string laughs = "]q\0"s;
  for (char i = 0; i < 60; ++i) {
    laughs += "](h"s + i + "h" + i + "eq" + static_cast<char>(i + 1);
  }
  rejected("(" + laughs + "t", "need far more memory");
  // The same with strings.
  rejected(
      "](" + unicode(std::string(1 << 20, 'x')) + "q\0"s +
          repeat("h\0"s, 100'000) + "e",
      "need far more memory");
  // One wide list in many places.
  rejected(
      "](](" + repeat("N", 1'000'000) + "eq\0"s + repeat("h\0"s, 10'000) + "e",
      "need far more memory");
  const size_t deep = 1'000'000;
  rejected(repeat("]", deep) + repeat("a", deep - 1), "nested more than 100");
  rejected("N" + repeat("\x85", deep), "nested more than 100");
  rejected(repeat("}K\1", deep) + "N" + repeat("s", deep), "nested more than");
  // Built from the outside, so that no value is deep when it is added to.
  std::string chain = "(]q\0"s;
  for (uint32_t i = 1; i < deep / 8; ++i) {
    chain += "j" + u32(i - 1) + "]r" + u32(i) + "a";
  }
  rejected(chain + "t", "nested more than 100");
  // Each part is shallow when it is first read.
  std::string parts = "](N";
  for (uint32_t i = 0; i < 10'000; ++i) {
    parts += i == 0 ? "N" : "j" + u32(i - 1);
    parts += repeat("\x85", 50) + "r" + u32(i);
  }
  rejected(parts + "e", "nested more than 100");
  rejected(repeat("(", deep), "the stack has 0 values");
  rejected(repeat("N", 4 * deep), "values on the stack");
  rejected("](" + repeat(")", 8 * deep) + "e", "need far more memory");
  // Keys for which the hash table of c10::Dict would grow without end.
  uint64_t inverse = 1; // of its factor, modulo 2^64
  for (int i = 0; i < 6; ++i) {
    inverse *= 2 - inverse * 11400714819323198485U;
  }
  std::string keys = "}(";
  for (uint64_t i = 0; i < 100; ++i) {
    keys += long_integer(static_cast<int64_t>(inverse * i)) + "N";
  }
  rejected(keys + "u", "need far more memory");
}

} // namespace ddp::test::torch_file_hostile_test
