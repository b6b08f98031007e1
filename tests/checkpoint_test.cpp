#include <checkpoint/state_dict.h>
#include <ddp/ddp.h>
#include <tests/support/ivalue_text.h>

namespace ddp::test::checkpoint_test {

struct Net : torch::nn::Module {
  explicit Net(int64_t width = 3) {
    conv = register_module("conv", torch::nn::Conv2d(1, width, 3));
    norm = register_module("norm", torch::nn::BatchNorm2d(width));
    scale = register_parameter("scale", torch::rand({width}));
    steps = register_buffer("steps", torch::randint(100, {}, torch::kLong));
    norm->running_mean.uniform_();
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::Tensor scale, steps;
};

StateDict copy_of(const torch::nn::Module& module) {
  StateDict copy;
  for (const auto& item : detail::named_state(module)) {
    copy.insert(item.key(), item->detach().clone());
  }
  return copy;
}

bool equal(const StateDict& a, const StateDict& b) {
  return a.keys() == b.keys() &&
      std::all_of(a.begin(), a.end(), [&](const auto& item) {
           return torch::equal(item.value(), b[item.key()]);
         });
}

// The error of loading; empty if there is none.
std::string complaint(const std::string& path, torch::nn::Module& module) {
  return words_of([&] { load_checkpoint(path, module); });
}

FOLDER_TEST("A checkpoint brings a module back") {
  const auto path = folder / "net.safetensors";
  const Net saved;
  Net loaded;
  REQUIRE_FALSE(equal(copy_of(loaded), copy_of(saved)));
  save_checkpoint(path, saved);
  const auto weight = loaded.conv->weight;
  load_checkpoint(path, loaded);
  CHECK(equal(copy_of(loaded), copy_of(saved)));
  CHECK(weight.is_same(loaded.conv->weight));
  CHECK(weight.requires_grad());
  CHECK(torch::equal(weight, saved.conv->weight));
  CHECK(folder.names() == std::set<std::string>{"net.safetensors"});
  CHECK(read_safetensors(path).metadata.at("format") == "pt");
}

FOLDER_TEST("a module's tensors in a file require no gradients, as in Python") {
  Net net;
  TrainingState state;
  state.add("net", net);
  save_checkpoint(folder / "net.pt", net);
  state.save(folder / "run.pt");
  CheckpointManager(folder / "run", state).save(1);
  for (const auto& saved :
       {read_checkpoint_file(folder / "net.pt"),
        entry(read_checkpoint_file(folder / "run.pt"), "net"),
        entry(read_checkpoint_file(folder / "run/step-1.pt"), "net")}) {
    const auto tensors = saved.toGenericDict();
    CHECK(tensors.size() == 9);
    for (const auto& item : tensors) {
      CHECK_FALSE(item.value().toTensor().requires_grad());
    }
  }
  CHECK(net.scale.requires_grad());
}

FOLDER_TEST("load_checkpoint lists all that does not fit") {
  const auto path = folder / "a.safetensors";
  Net net(3);
  const auto before = copy_of(net);
  auto state = copy_of(Net(5));
  state.erase("norm.bias");
  state.erase("steps");
  state.insert("steps", torch::tensor(1.5));
  state.insert("head.weight", torch::ones(2));
  write_safetensors(path, state);
  const auto message = complaint(path, net);
  CHECK_THAT(
      message,
      Has("load_checkpoint: ",
          path,
          "missing in the file: norm.bias",
          "unexpected in the file: head.weight",
          "wrong shape: conv.weight is [5, 1, 3, 3] in the file, "
          "[3, 1, 3, 3] in the module",
          "wrong shape: scale is [5]",
          "wrong dtype: steps is Float in the file, Long in the module"));
  CHECK(equal(copy_of(net), before));
}

FOLDER_TEST(
    "load_checkpoint leaves alone what only one side has, if asked to") {
  const auto path = folder / "a.safetensors";
  const auto lenient = LoadOptions().strict(false);
  auto state = copy_of(Net());
  state.erase("norm.bias");
  state.insert("head.weight", torch::ones(2));
  write_safetensors(path, state);
  Net net;
  const auto bias = net.norm->bias.detach().clone();
  const auto keys = load_checkpoint(path, net, {}, lenient);
  CHECK(keys.missing_keys == std::vector<std::string>{"norm.bias"});
  CHECK(keys.unexpected_keys == std::vector<std::string>{"head.weight"});
  CHECK(torch::equal(net.conv->weight, state["conv.weight"]));
  CHECK(torch::equal(net.norm->bias, bias));
  // Another shape is an error, and so is a file without any of the module's
  // tensors.
  Net wide(5);
  CHECK_THROWS_WITH(
      load_checkpoint(path, wide, {}, lenient),
      Has("wrong shape: conv.weight") && !Has("missing in the file"));
  StateDict other;
  other.insert("head.weight", torch::ones(2));
  write_safetensors(path, other);
  CHECK_THROWS_WITH(
      load_checkpoint(path, net, {}, lenient),
      Has("missing in the file: conv.weight",
          "unexpected in the file: head.weight"));
}

FOLDER_TEST("a file may lack the counter of a batch-norm, as in Python") {
  const auto path = folder / "a.safetensors";
  auto state = copy_of(Net());
  state.erase("norm.num_batches_tracked");
  write_safetensors(path, state);
  Net net;
  net.norm->num_batches_tracked.fill_(7);
  load_checkpoint(path, net);
  CHECK(net.norm->num_batches_tracked.item<int64_t>() == 7);
  CHECK(torch::equal(net.norm->running_mean, state["norm.running_mean"]));
  state.erase("norm.running_mean");
  write_safetensors(path, state);
  CHECK_THAT(
      complaint(path, net),
      Has("missing in the file: norm.num_batches_tracked",
          "missing in the file: norm.running_mean"));
}

FOLDER_TEST("a file may have one name of tied weights, as Hugging Face's") {
  struct Tied : torch::nn::Module {
    torch::nn::Embedding wte =
        register_module("wte", torch::nn::Embedding(4, 2));
    torch::Tensor head = register_parameter("head", wte->weight);
  };
  for (const auto* name : {"wte.weight", "head"}) {
    StateDict state;
    state.insert(name, torch::rand({4, 2}));
    write_safetensors(folder / "a.safetensors", state);
    Tied net;
    load_checkpoint(folder / "a.safetensors", net);
    CHECK(net.head.is_same(net.wte->weight));
    CHECK(torch::equal(net.head, state[name]));
  }
}

FOLDER_TEST("load_checkpoint converts to the module's dtype") {
  const auto path = folder / "a.safetensors";
  Net net;
  net.norm->num_batches_tracked.fill_(7);
  net.to(torch::kHalf); // its counters as well
  REQUIRE(net.norm->num_batches_tracked.scalar_type() == torch::kHalf);
  save_checkpoint(path, net);
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    Net loaded;
    loaded.scale.set_data(loaded.scale.to(dtype));
    load_checkpoint(path, loaded);
    CHECK(loaded.scale.scalar_type() == dtype);
    CHECK(torch::equal(loaded.scale, net.scale.to(dtype)));
    CHECK(loaded.norm->num_batches_tracked.item<int64_t>() == 7);
  }
}

FOLDER_TEST("save_checkpoint says why it cannot") {
  const Net net;
  CHECK_THROWS_WITH(
      save_checkpoint(folder / "no/a.safetensors", net),
      Has("save_checkpoint: ", "no/a.safetensors", "create the folder"));
  for (const std::string name : {"a.bin", "a", "a.safetensors/b", ""}) {
    CHECK_THROWS_AS(save_checkpoint(folder / name, net), c10::ValueError);
    CHECK_THROWS_WITH(
        save_checkpoint(folder / name, net), Has(".pt, .pth or .safetensors"));
  }
  CHECK(folder.names().empty());
}

} // namespace ddp::test::checkpoint_test
