#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/support/containers.h>
#include <tests/support/child.h>
#include <tests/support/ivalue_text.h>
#include <tests/support/launched.h>
#include <tests/support/memory_file.h>

namespace ddp::test::checkpoint_damage_test {

using c10::IValue;
using detail::new_dict;
using detail::new_list;

constexpr int kFlips = 6'000;

/// What a process may have beside what it has; sanitizers keep what is freed.
size_t megabytes() {
  return std::getenv("DDP_TEST_TIMEOUT_FACTOR") ? 400 : 24;
}

struct Counts {
  int refused = 0, same = 0, other = 0;
};

/// Reads a file of these bytes; another exception than c10::Error, such as
/// std::bad_alloc, goes up.
void read_damaged(
    const std::string& path,
    const MemoryFile& file,
    const std::string& bytes,
    const std::string& expected,
    Counts& counts) {
  file.set(bytes);
  IValue value;
  try {
    const bool map = (counts.refused + counts.same) % 2 == 0;
    value = read_checkpoint_file(path, LoadOptions().memory_map(map));
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("cannot read '" + path + "': ") != 0) {
      throw std::runtime_error("an error that names no file: " + text);
    }
    ++counts.refused;
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

/// What of a file is verified.
enum class Checked { kAllBytes, kValues, kNothing };

// In a process of its own, whose memory is limited.
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
    std::cout << end << ", " << whole.size() << " bytes: " << flipped.refused
              << " of " << kFlips << " refused, " << flipped.same
              << " read as they were, " << flipped.other << " otherwise"
              << std::endl;
    switch (checked) {
      case Checked::kAllBytes:
        REQUIRE(flipped.refused == kFlips);
        break;
      case Checked::kValues:
        REQUIRE(flipped.other == 0);
        REQUIRE(flipped.refused > kFlips / 10);
        break;
      case Checked::kNothing:
        REQUIRE(flipped.refused > 0);
        REQUIRE(flipped.other > 0);
    }
    REQUIRE(
        truncate(damaged, file, whole).refused ==
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
  auto groups = new_list();
  groups.push_back(c10::ivalue::Tuple::create({0.1, true, "adam"}));
  return dict(
      {{"model", weights()},
       {"optimizer", groups},
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
  torch::save(
      std::vector<torch::Tensor>{torch::rand({9}), torch::arange(7)},
      folder / "tensors.pt");
  damage(folder / "tensors.pt", Checked::kValues);
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

// No program's safetensors files but this one's have checksums.
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

} // namespace ddp::test::checkpoint_damage_test
