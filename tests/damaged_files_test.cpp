#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/support/containers.h>
#include <sys/mman.h>
#include <tests/support/child.h>
#include <tests/support/ivalue_text.h>
#include <tests/support/launched.h>
#include <tests/support/torch_zip.h>

namespace ddp::test::damaged_files_test {

using detail::crc32;

TEST_CASE("CRC-32 is that of zip files") {
  CHECK(crc32(0, "123456789", 9) == 0xCBF43926);
  const auto data = torch::randint(256, {1000}, torch::kUInt8);
  const auto* bytes = data.const_data_ptr<uint8_t>();
  for (size_t size = 0; size < 990; ++size) {
    uint32_t expected = ~0U; // bit by bit, by definition
    for (size_t i = 0; i < size; ++i) {
      expected ^= bytes[i + size % 7];
      for (int bit = 0; bit < 8; ++bit) {
        expected = expected >> 1 ^ (expected & 1) * 0xEDB88320;
      }
    }
    const auto* start = bytes + size % 7;
    INFO(size);
    REQUIRE(crc32(0, start, size) == ~expected);
    const auto part = size / 3;
    REQUIRE(
        crc32(crc32(0, start, part), start + part, size - part) == ~expected);
  }
}

TEST_CASE("A zip file's directory has to be sound") {
  const std::string none = "\x80\2N.";
  const auto good = zip_of({{"a/data.pkl", none}, {"a/x", "123"}});
  REQUIRE(complaint(good).empty());
  const auto directory = good.find("PK\x01\x02");
  const auto second = good.find("PK\x01\x02", directory + 1);
  const auto end = good.find("PK\x05\x06");
  const auto changed = [&](size_t at, const std::string& bytes) {
    auto text = good;
    return complaint(text.replace(at, bytes.size(), bytes));
  };
  CHECK_THAT(complaint(""), Has("truncated: its 0 bytes"));
  CHECK_THAT(complaint(std::string(99, 'x')), Has("not a zip file"));
  CHECK_THAT(complaint(good + "x"), Has("do not end"));
  CHECK_THAT(
      complaint(zip_of({{"a/data.pkl", none}, {"a/data.pkl", none}})),
      Has("duplicate record 'a/data.pkl'"));
  CHECK_THAT(
      complaint(zip_of({{"a/data", none}})), Has("no record 'a/data.pkl'"));
  CHECK_THAT(complaint(zip_of({})), Has("it is empty"));
  CHECK_THAT(
      complaint(zip_of({{"a/data.pkl", none}}, 8)),
      Has("'a/data.pkl' is compressed"));
  CHECK_THAT(changed(directory + 8, u16(1)), Has("is encrypted"));
  CHECK_THAT(changed(directory + 16, u32(1)), Has("has the CRC-32"));
  CHECK_THAT(changed(second + 16, u32(1)), Has("record 'a/x' has the CRC-32"));
  CHECK_THAT(
      changed(second + 20, u32(200) + u32(200)), Has("overlap the next part"));
  CHECK_THAT(
      changed(second + 42, u32(0)), Has("'a/x' does not begin at byte 0"));
  CHECK_THAT(changed(second + 42, u32(0xFFFFFFF0)), Has("but the file has"));
  CHECK_THAT(
      changed(second + 20, u32(0xFFFFFFFF) + u32(0xFFFFFFFF)),
      Has("no 64-bit sizes"));
  CHECK_THAT(changed(second, "XX"), Has("no record where"));
  CHECK_THAT(changed(end + 8, u16(9) + u16(9)), Has("cannot have 9"));
  CHECK_THAT(changed(end + 8, u16(1) + u16(1)), Has("bytes more than"));
  CHECK_THAT(changed(end + 4, u16(1)), Has("one part of"));
  CHECK_THAT(changed(end + 12, u32(7)), Has("does not end"));
  CHECK_THAT(changed(end + 16, u32(0xFFFFFFF0)), Has("does not end"));
}

TEST_CASE("Sizes of 64 bits are read") {
  const std::string name = "a/data.pkl";
  const std::string pickle = "\x80\2K\7.";
  const auto crc = u32(crc32(0, pickle.data(), pickle.size()));
  const auto escape = u32(0xFFFFFFFF);
  const auto size = number(uint64_t{pickle.size()});
  const auto local = "PK\x03\x04" + u16(45) + u16(0) + u16(0) + u32(0) + crc +
      escape + escape + u16(name.size()) + u16(20) + name + u16(1) + u16(16) +
      size + size + pickle;
  const auto padding = u16(0x4246) + u16(3) + "ZZZ";
  const auto directory = "PK\x01\x02" + u16(45) + u16(45) + u16(0) + u16(0) +
      u32(0) + crc + escape + escape + u16(name.size()) + u16(35) + u16(0) +
      u16(0) + u16(0) + u32(0) + escape + name + padding + u16(1) + u16(24) +
      size + size + number(uint64_t{0});
  const auto end64 = [&](uint64_t offset, uint64_t locator_says) {
    const auto one = number(uint64_t{1});
    return "PK\x06\x06" + number(uint64_t{44}) + u16(45) + u16(45) +
        number(uint64_t{0}) + one + one + number(uint64_t{directory.size()}) +
        number(offset) + "PK\x06\x07" + u32(0) + number(locator_says) + u32(1);
  };
  const auto end = "PK\x05\x06" + u32(0) + u16(0xFFFF) + u16(0xFFFF) + escape +
      escape + u16(0);
  const uint64_t at = local.size() + directory.size();
  const auto body = local + directory;
  CHECK(value_of(body + end64(local.size(), at) + end).toInt() == 7);
  CHECK_THAT(
      complaint(body + end64(local.size(), at + 1) + end),
      Has("after its locator"));
  CHECK_THAT(
      complaint(body + end64(local.size(), at - 1) + end),
      Has("no 64-bit end record"));
  CHECK_THAT(
      complaint(body + end64(~uint64_t{0}, at) + end), Has("does not end"));
}

FOLDER_TEST("A file has more records than 16 bits count") {
  c10::impl::GenericList tensors(c10::AnyType::get());
  for (int64_t i = 0; i < 70'000; ++i) {
    tensors.push_back(torch::tensor(i));
  }
  write_checkpoint_file(folder / "a.pt", tensors);
  const auto read = read_checkpoint_file(folder / "a.pt").toList();
  REQUIRE(read.size() == tensors.size());
  for (size_t i = 0; i < tensors.size(); i += 99) {
    REQUIRE(read.get(i).toTensor().item<int64_t>() == static_cast<int64_t>(i));
  }
}

// With matching checksums, so that only the pickle's reader can notice the
// damage.
TEST_CASE("Damaged pickles crash nothing") {
  const auto pickle = "}q\x00("s + unicode("w") +
      tensor_of(kZero, kFour, kOne) + unicode("b") +
      tensor_of("K\1", "K\2\x85", kOne) + "K\1](NK\7e)\x85\x86u";
  REQUIRE(complaint(torch_file_of(pickle)).empty());
  require_in_child(400, [&] {
    std::mt19937_64 random(6);
    size_t rejected = 0;
    for (size_t i = 0; i < 20'000; ++i) {
      auto damaged = pickle;
      for (size_t changes = 1 + i % 4; changes > 0; --changes) {
        const auto at = random() % damaged.size();
        const auto length = std::min(random() % 8, damaged.size() - at);
        if (i % 2 == 0) {
          damaged[at] = static_cast<char>(random());
        } else { // opcodes in other places
          damaged.insert(random() % damaged.size(), damaged.substr(at, length));
        }
      }
      rejected += complaint(torch_file_of(damaged)).empty() ? 0 : 1;
    }
    REQUIRE(rejected > 10'000);
  });
}

using c10::IValue;
using detail::new_dict;

constexpr int kFlips = 6'000;

/// A file in memory: changes on a disk would take too long.
class MemoryFile {
 public:
  /// Creates a link at `path` to the file, for this process and its forks.
  explicit MemoryFile(const std::string& path)
      : descriptor_(::memfd_create("ddp-test", MFD_CLOEXEC)) {
    std::filesystem::create_symlink(
        "/proc/self/fd/" + std::to_string(descriptor_), path);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() {
    ::close(descriptor_);
  }

  void set(const std::string& bytes) const {
    const auto size = static_cast<ssize_t>(bytes.size());
    if (::ftruncate(descriptor_, size) != 0 ||
        ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != size) {
      throw std::system_error(errno, std::generic_category(), "MemoryFile");
    }
  }

 private:
  int descriptor_;
};

/// The additional memory of a process; sanitizers keep freed memory.
size_t megabytes() {
  return std::getenv("DDP_TEST_TIMEOUT_FACTOR") ? 400 : 24;
}

struct Counts {
  int rejected = 0, same = 0, other = 0;
};

/// Reads a file of these bytes; exceptions other than c10::Error, such as
/// std::bad_alloc, propagate.
void read_damaged(
    const std::string& path,
    const MemoryFile& file,
    const std::string& bytes,
    const std::string& expected,
    Counts& counts) {
  file.set(bytes);
  IValue value;
  try {
    const bool map = (counts.rejected + counts.same) % 2 == 0;
    value = read_checkpoint_file(path, LoadOptions().mmap(map));
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("cannot read '" + path + "': ") != 0) {
      throw std::runtime_error("an error that names no file: " + text);
    }
    ++counts.rejected;
    return;
  }
  ++(text_of(value) == expected ? counts.same : counts.other);
}

Counts flip_bits(
    const std::string& path,
    const MemoryFile& file,
    const std::string& whole) {
  file.set(whole);
  const auto expected = text_of(read_checkpoint_file(path));
  std::mt19937_64 random(7);
  Counts counts;
  for (int i = 0; i < kFlips; ++i) {
    auto damaged = whole;
    for (int flips = 1 + i % 3; flips > 0 || damaged == whole; --flips) {
      auto& byte = damaged[random() % damaged.size()];
      byte = static_cast<char>(byte ^ (1 << random() % 8));
    }
    read_damaged(path, file, damaged, expected, counts);
  }
  return counts;
}

Counts truncate(
    const std::string& path,
    const MemoryFile& file,
    const std::string& whole) {
  Counts counts;
  for (size_t size = 0; size < whole.size(); ++size) {
    read_damaged(path, file, whole.substr(0, size), "", counts);
  }
  return counts;
}

/// The verified part of a file.
enum class Checked { kAllBytes, kValues, kNothing };

// Runs in a child process with limited memory.
void damage(const std::string& path, Checked checked) {
  const auto whole = read_text(path);
  const auto end = path.substr(path.rfind('/'));
  REQUIRE(whole.size() > 500);
  REQUIRE(whole.size() < 20'000);
  INFO(path);
  const auto damaged = path + ".damaged" + path.substr(path.rfind('.'));
  const MemoryFile file(damaged);
  require_in_child(megabytes(), [&] {
    const auto flipped = flip_bits(damaged, file, whole);
    std::cout << end << ", " << whole.size() << " bytes: " << flipped.rejected
              << " of " << kFlips << " refused, " << flipped.same
              << " read as they were, " << flipped.other << " otherwise"
              << std::endl;
    switch (checked) {
      case Checked::kAllBytes:
        REQUIRE(flipped.rejected == kFlips);
        break;
      case Checked::kValues:
        REQUIRE(flipped.other == 0);
        REQUIRE(flipped.rejected > kFlips / 10);
        break;
      case Checked::kNothing:
        REQUIRE(flipped.rejected > 0);
        REQUIRE(flipped.other > 0);
    }
    REQUIRE(
        truncate(damaged, file, whole).rejected ==
        static_cast<int>(whole.size()));
  });
}

struct Net : torch::nn::Module {
  Net() {
    register_module("conv", torch::nn::Conv2d(2, 3, 3));
    register_module("norm", torch::nn::BatchNorm2d(3));
  }
};

IValue weights() {
  torch::manual_seed(0);
  auto result = new_dict();
  for (const auto& entry : Net().named_parameters()) {
    result.insert(entry.key(), entry->detach());
  }
  return result;
}

IValue training() {
  return dict(
      {{"model", weights()},
       {"optimizer", list({c10::ivalue::Tuple::create({0.1, true, "adam"})})},
       {"step", 12},
       {"empty", torch::zeros({0, 3})},
       {"mask", torch::ones({5}).to(torch::kBool)}});
}

FOLDER_TEST("damage of this library's files never changes a value") {
  const auto check = [&](const std::string& name, const IValue& value) {
    write_checkpoint_file(folder / (name + ".safetensors"), value);
    damage(folder / (name + ".safetensors"), Checked::kAllBytes);
    write_checkpoint_file(folder / (name + ".pt"), value);
    damage(folder / (name + ".pt"), Checked::kValues);
  };
  check("training", training());
  check("weights", weights());
}

FOLDER_TEST("damage of LibTorch's files never changes a value") {
  torch::serialize::OutputArchive module;
  Net().save(module);
  module.save_to(folder / "module.pt");
  damage(folder / "module.pt", Checked::kValues);
}

FOLDER_TEST("damage of Python's files never changes a value") {
  const auto path = folder / "python.pt";
  const std::string script =
      "import sys, torch\n"
      "net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(),\n"
      "                          torch.nn.Linear(5, 2))\n"
      "optimizer = torch.optim.Adam(net.parameters())\n"
      "net(torch.ones(3, 4)).sum().backward()\n"
      "optimizer.step()\n"
      "torch.save({'model': net.state_dict(), 'epoch': 3,\n"
      "            'optimizer': optimizer.state_dict()}, sys.argv[1])\n";
  python_output({"-c", script, path});
  damage(path, Checked::kValues);
}

// Only ddp's safetensors files have checksums.
FOLDER_TEST("damage of other programs' safetensors files crashes nothing") {
  const auto path = folder / "foreign.safetensors";
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}", data;
  for (int i = 0; i < 6; ++i) {
    const auto begin = std::to_string(data.size());
    for (int j = 0; j < 6; ++j) {
      data += number(static_cast<float>(i * j));
    }
    header += ",\"layer." + std::to_string(i) +
        ".weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[" +
        begin + "," + std::to_string(data.size()) + "]}";
  }
  header += "}";
  write_text(path, foreign_safetensors(header, data));
  damage(path, Checked::kNothing);
}

} // namespace ddp::test::damaged_files_test
