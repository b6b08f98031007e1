// The nets of examples/cifar10_resnet/resnet.cpp against torchvision's, and
// their weights.
#include <c10/util/hash.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/ddp.h>
#include <examples/cifar10_resnet/resnet.h>
#include <examples/cifar10_resnet/resnet_weights.h>
#include <tests/support/catch.h>
#include <tests/support/mpirun.h>
#include <tests/support/process.h>
#include <tests/support/ranks.h>
#include <tests/support/skip.h>

#include <sstream>

namespace resnet_test {

using ddp::ProcessGroup;
using ddp::test::kLong;
using ddp::test::ranks;
using ddp::test::run;
using ddp::test::TemporaryFolder;
using ddp::test::variable;
using Dict = c10::impl::GenericDict;
using Names = std::vector<std::string>;

namespace {

Dict new_dict() {
  return Dict(c10::StringType::get(), c10::AnyType::get());
}

Dict read(const std::string& path) {
  return ddp::read_checkpoint_file(path).toGenericDict();
}

/// Python's `state_dict()`; the tensors are the net's.
Dict state_dict(ResNet& net) {
  ddp::TrainingState state;
  state.add("net", net);
  return state.state_dict().toGenericDict().at("net").toGenericDict();
}

std::string list(const Dict& state) {
  std::ostringstream text;
  for (const auto& entry : state) {
    text << entry.key().toStringRef() << " " << entry.value().toTensor().sizes()
         << "\n";
  }
  return text.str();
}

int64_t parameter_count(const ResNet& net) {
  int64_t count = 0;
  for (const auto& parameter : net.parameters()) {
    count += parameter.numel();
  }
  return count;
}

double difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>() / b.abs().max().item<double>();
}

ResNetOptions small(int64_t classes) {
  return {18, classes, Stem::kTorchvision};
}

/// Writes the weights of a net for `classes`, changed as `change` does.
ResNet write_weights(
    const std::string& path,
    int64_t classes,
    const std::function<void(Dict&)>& change = nullptr) {
  ResNet net(small(classes));
  auto state = state_dict(net);
  if (change) {
    change(state);
  }
  ddp::write_checkpoint_file(path, state);
  return net;
}

bool equal(const ResNet& a, const ResNet& b, const Names& but = {}) {
  const auto own = a.named_parameters();
  for (const auto& other : b.named_parameters()) {
    const bool differs = std::count(but.begin(), but.end(), other.key()) > 0;
    if (!differs && !own[other.key()].equal(other.value())) {
      return false;
    }
  }
  return true;
}

} // namespace

TEST_CASE("names and shapes are torchvision's") {
  struct Expected {
    int64_t depth;
    int64_t parameters;
    /// SHA-1 of the lines "name [shape]" of torchvision 0.26's state_dict().
    std::string hash;
  };
  const auto expected = GENERATE(
      Expected{18, 11689512, "ed4a6cb7192162180bb519e460690d40c3e90895"},
      Expected{34, 21797672, "85cbad9f5361a7cd357a8dadf1811af06bf6085d"},
      Expected{50, 25557032, "0bfa8e3921a1f18859bdbcabd33f6ac6f1eb4c2c"},
      Expected{101, 44549160, "d7d0efe8469e8c3879baa4f661ac3076c163abb2"},
      Expected{152, 60192808, "bc461833a349818cac022e0b36c41820a4a30cb3"});
  ResNet net({expected.depth, 1000, Stem::kTorchvision});
  const auto names = list(state_dict(net));
  CAPTURE(expected.depth, names);
  CHECK(parameter_count(net) == expected.parameters);
  for (const std::string line :
       {"conv1.weight [64, 3, 7, 7]\nbn1.weight [64]\n",
        "\nlayer1.0.conv1.weight [64, 64, ",
        "\nlayer2.0.downsample.1.num_batches_tracked []\n",
        "\nlayer4.0.downsample.0.weight [",
        "\nfc.bias [1000]\n"}) {
    CHECK_THAT(names, ContainsSubstring(line));
  }
  CHECK(c10::sha1(names).str() == expected.hash);
}

TEST_CASE("the stem for small images keeps their resolution") {
  ResNet net({18, 10, Stem::kCifar});
  CHECK(parameter_count(net) == 11173962);
  CHECK_THAT(
      list(state_dict(net)),
      ContainsSubstring("conv1.weight [64, 3, 3, 3]\n") &&
          ContainsSubstring("\nfc.weight [10, 512]\n"));
  REQUIRE_THROWS_WITH(
      ResNet({20, 10, Stem::kCifar}), ContainsSubstring("depth is 20"));
}

TEST_CASE("nets compute what Python's functions do") {
  ddp::test::python_with_torch();
  const auto options = GENERATE(
      ResNetOptions{18, 10, Stem::kCifar},
      ResNetOptions{50, 7, Stem::kTorchvision});
  torch::manual_seed(3);
  ResNet net(options);
  const auto initial = state_dict(net);
  for (const auto& buffer : net.named_buffers()) {
    if (buffer.value().is_floating_point()) {
      torch::NoGradGuard no_grad;
      buffer.value().add_(torch::rand_like(buffer.value())); // none is trivial
    }
  }
  const TemporaryFolder folder;
  ddp::save_checkpoint(folder / "weights.pth", net);
  auto input = new_dict();
  const auto images = torch::randn({4, 3, 40, 48});
  const auto labels = torch::arange(4);
  input.insert("images", images);
  input.insert("labels", labels);
  ddp::write_checkpoint_file(folder / "input.pt", input);
  const auto outcome =
      run({{variable("DDP_PYTHON"),
            variable("DDP_SOURCE") + "/tests/parity/resnet_oracle.py",
            folder.path()},
           {}},
          kLong);
  INFO(outcome.output);
  REQUIRE(outcome.exit_code == 0);

  const auto expected = read(folder / "output.pt");
  const auto tensor = [&](const char* name) {
    return expected.at(name).toTensor();
  };
  net.eval();
  CHECK(difference(net.forward(images), tensor("evaluation")) < 1e-5);
  net.train();
  const auto scores = net.forward(images);
  CHECK(difference(scores, tensor("training")) < 1e-4);
  torch::nn::functional::cross_entropy(scores, labels).backward();
  CHECK(
      difference(
          net.named_parameters()["conv1.weight"].grad(), tensor("gradient")) <
      1e-3);
  CHECK(
      difference(
          net.named_buffers()["layer4.1.bn2.running_var"],
          tensor("running_var")) < 1e-4);
  const auto drawn = expected.at("initial").toGenericDict();
  CHECK(drawn.size() > 20);
  for (const auto& entry : drawn) {
    CAPTURE(entry.key().toStringRef());
    CHECK(initial.at(entry.key()).toTensor().equal(entry.value().toTensor()));
  }
}

TEST_CASE("weights for other classes lose their last layer") {
  const TemporaryFolder folder;
  const auto path = folder / "weights.pth";
  const auto saved = write_weights(path, 1000);
  ResNet same(small(1000));
  CHECK(load_weights(path, same).empty());
  CHECK(equal(same, saved));
  ResNet other(small(10));
  const auto own = other.named_parameters()["fc.bias"].clone();
  const Names last{"fc.weight", "fc.bias"};
  CHECK(load_weights(path, other) == last);
  CHECK(equal(other, saved, last));
  CHECK(other.named_parameters()["fc.bias"].equal(own));
}

TEST_CASE("weights come in the forms that Python saves them in") {
  const TemporaryFolder folder;
  const auto path = folder / "weights.pth";
  const auto loads = [&](const std::function<void(Dict&)>& change) {
    const auto saved = write_weights(path, 10, change);
    ResNet net(small(10));
    CHECK(load_weights(path, net).empty());
    CHECK(equal(net, saved));
  };
  loads([](Dict& state) { // without counts, which old files lack
    for (const auto& entry : state.copy()) {
      if (entry.value().toTensor().dim() == 0) {
        REQUIRE(state.erase(entry.key()) == 1);
      }
    }
    REQUIRE(state.size() == 102);
  });
  loads([](Dict& state) { // of a wrapped net, in a whole training's file
    auto wrapped = new_dict();
    for (const auto& entry : state) {
      wrapped.insert("module." + entry.key().toStringRef(), entry.value());
    }
    state.clear();
    state.insert("epoch", 3);
    state.insert("state_dict", wrapped);
  });
  ResNet net(small(10));
  const ResNet saved(small(10));
  ddp::save_checkpoint(folder / "weights.safetensors", saved);
  CHECK(load_weights(folder / "weights.safetensors", net).empty());
  CHECK(equal(net, saved));
}

TEST_CASE("weights that do not fit change nothing") {
  const TemporaryFolder folder;
  const auto path = folder / "weights.pth";
  ResNet net(small(10));
  const auto before = ddp::parameter_hash(net);
  const auto refused = [&](const std::string& reason) {
    REQUIRE_THROWS_WITH(
        load_weights(path, net),
        ContainsSubstring("weights.pth") && ContainsSubstring(reason));
    REQUIRE(ddp::parameter_hash(net) == before);
  };
  refused("No such file");
  write_weights(path, 10, [](Dict& state) {
    REQUIRE(state.erase("layer3.1.bn2.weight") == 1);
  });
  refused("layer3.1.bn2.weight");
  write_weights(path, 10, [](Dict& state) {
    state.insert("layer5.0.conv1.weight", torch::zeros({1}));
  });
  refused("layer5.0.conv1.weight");
  ddp::save_checkpoint(path, ResNet({18, 10, Stem::kCifar}));
  refused("conv1.weight has the shape [64, 3, 3, 3] there, and [64, 3, 7, 7]");
  ddp::save_checkpoint(path, ResNet({34, 10, Stem::kTorchvision}));
  refused("layer1.2.conv1.weight");
}

TEST_CASE("ranks compute the gradients of their batches together") {
  // With running statistics batch-norm takes each image by itself, so that the
  // mean over ranks is that over all images; those of batches are per rank.
  ranks(3, [](ProcessGroup group) {
    torch::manual_seed(1);
    const auto images = torch::randn({6, 3, 32, 32});
    const auto labels = torch::arange(6);
    const auto gradients = [&](ResNet& net, int64_t from, int64_t to) {
      net.eval();
      torch::nn::functional::cross_entropy(
          net.forward(images.slice(0, from, to)), labels.slice(0, from, to))
          .backward();
      return net.named_parameters();
    };
    torch::manual_seed(2);
    ResNet alone(small(10));
    torch::manual_seed(2);
    const auto net = std::make_shared<ResNet>(small(10));
    ddp::Reducer reducer(net, group);
    const auto whole = gradients(alone, 0, 6);
    const auto from = 2 * group.rank();
    for (const auto& entry : gradients(*net, from, from + 2)) {
      CAPTURE(entry.key());
      REQUIRE(
          difference(entry.value().grad(), whole[entry.key()].grad()) < 1e-3);
    }
    REQUIRE(net->named_parameters().size() == 62);
  });
}

} // namespace resnet_test
