// Conversions by ddp-checkpoint.
#include <tests/support/checkpoint_command.h>
#include <tests/support/launched.h>

namespace ddp::test::checkpoint_conversion_test {

using Catch::Matchers::Matches;

const std::string kWriteTraining = R"(
import sys
import torch
from torch import nn

net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
net.append(net[2])
optimizer = torch.optim.AdamW(net.parameters(), 0.125)
net(torch.rand(5, 4)).sum().backward()
optimizer.step()
torch.save(
    {
        "model": {"module." + k: v for k, v in net.state_dict().items()},
        "optimizer": optimizer.state_dict(),
        "epoch": 7,
        "best": float("inf"),
        "note": "\x1b[31m" * 50,
        "\x1b[2J": 1.5,
    },
    sys.argv[1] + "/training.pt",
)
)";

const std::string kReadConverted = R"(
import sys
import torch

def load(name):
    return torch.load(sys.argv[1] + "/" + name)

a, b, stripped = load("training.pt"), load("again.pt"), load("stripped.pt")
assert list(a) == list(b) == list(stripped)
assert {k: v for k, v in b.items() if k not in ("model", "optimizer")} == {
    k: v for k, v in a.items() if k not in ("model", "optimizer")}
assert b["optimizer"]["param_groups"] == a["optimizer"]["param_groups"]
for i, state in a["optimizer"]["state"].items():
    for k, v in state.items():
        assert torch.equal(b["optimizer"]["state"][i][k], v)
        assert torch.equal(stripped["optimizer"]["state"][i][k], v)
assert list(b["model"]) == list(a["model"])
for k, v in a["model"].items():
    assert torch.equal(b["model"][k], v)
    assert torch.equal(stripped["model"][k.removeprefix("module.")], v)
assert (stripped["model"]["2.weight"].data_ptr() ==
        stripped["model"]["3.weight"].data_ptr())
)";

FOLDER_TEST("a training that Python wrote") {
  python_output({"-c", kWriteTraining, folder.path()});
  const auto path = folder / "training.pt";

  const auto text = output_of(0, {"inspect", path});
  CHECK_THAT(
      text,
      Has("written by Python's torch.save",
          "\nepoch = 7\n",
          "\nbest = inf\n",
          "\n\\u001b[2J = 1.5\n",
          "\noptimizer.param_groups.0.lr = 0.125\n",
          "\noptimizer       18        72  288 B\n",
          "\nmodel.module.0.weight               [3, 4]  float32  48 B\n",
          "2 of them share memory with others\n"));
  CHECK(text.find('\x1b') == std::string::npos);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK((line.size() <= 80 || line.rfind(path, 0) == 0));
  }

  const auto flat = folder / "training.safetensors";
  output_of(0, {"convert", path, flat});
  output_of(0, {"convert", flat, folder / "again.pt"});
  CHECK(output_of(0, {"diff", path, flat}).empty());
  CHECK(output_of(0, {"diff", path, folder / "again.pt"}).empty());
  CHECK_THAT(
      output_of(0, {"verify", path, flat, folder / "again.pt"}),
      Matches(
          "ok .*CRC-32 of each.*\nok .*every byte\nok .*CRC-32 of each.*\n"));
  CHECK_THAT(
      output_of(0, {"strip-prefix", path, folder / "stripped.pt"}),
      Has("11 names changed"));
  python_output({"-c", kReadConverted, folder.path()});
}

FOLDER_TEST("a module that torch::save wrote") {
  const torch::nn::Sequential net(
      torch::nn::Linear(2, 3), torch::nn::ReLU(), torch::nn::Linear(3, 1));
  const auto path = folder / "net.pt";
  torch::save(net, path);
  CHECK_THAT(
      output_of(0, {"inspect", path}),
      Has("written by LibTorch's torch::save",
          "\n2.weight  [1, 3]  float32  12 B\n"));
  auto state = detail::new_dict();
  for (const auto& entry : net->named_parameters()) {
    state.insert(entry.key(), entry.value().detach());
  }
  for (const std::string name : {"flat.pt", "flat.safetensors"}) {
    output_of(0, {"convert", path, folder / name, "--flat"});
    CHECK(text_of(read_checkpoint_file(folder / name)) == text_of(state));
  }
  CHECK(read_safetensors(folder / "flat.safetensors").metadata.size() == 1);
}

FOLDER_TEST("an entry of a training is converted") {
  const auto w = torch::rand({3});
  const auto path = write_training(folder, "a.pt", w);
  const auto out = folder / "w.safetensors";
  output_of(0, {"convert", path, out, "--entry", "model"});
  CHECK(text_of(read_checkpoint_file(out)) == text_of(dict({{"w", w}})));
  CHECK_THAT(
      trouble({"convert", path, out, "--entry", "modl"}),
      Has("no entry 'modl'; it has model, epoch"));
  CHECK_THAT(
      trouble({"convert", path, out, "--flat"}),
      Has("'epoch' is not a tensor"));
  CHECK_THAT(
      trouble({"convert", path, folder / "a.bin"}),
      Has("unknown extension; use .pt"));
  // The metadata of a safetensors file is kept, also over an index, and a file
  // may be converted in place.
  StateDict tensors;
  tensors.insert("w", w);
  write_safetensors(out, tensors, {{"author", "A"}});
  output_of(0, {"convert", out, out});
  const auto index = folder / "c.safetensors.index.json";
  output_of(0, {"convert", out, index});
  output_of(0, {"convert", index, out});
  CHECK(
      read_safetensors(out).metadata ==
      SafetensorsMetadata{{"author", "A"}, {"format", "pt"}});
}

FOLDER_TEST("prefixes of names are dropped") {
  const auto path = folder / "a.pt", out = folder / "b.pt";
  const auto w = torch::rand({3});
  const auto optimizer =
      dict({{"state", dict({{"module.w", w}})}, {"param_groups", "module.w"}});
  const auto training = [&](const std::string& prefix) {
    return dict(
        {{"model", dict({{prefix + "w", w}, {"other", w}})},
         {"all", c10::ivalue::Tuple::create({dict({{prefix + "v", w}})})},
         {"module.optimizer", optimizer},
         {"module.epoch", 3}});
  };
  write_checkpoint_file(path, training("module."));
  CHECK_THAT(output_of(0, {"strip-prefix", path, out}), Has("2 names changed"));
  CHECK(text_of(read_checkpoint_file(out)) == text_of(training("")));
  CHECK_THAT(trouble({"strip-prefix", out, path}), Has("no tensor of '" + out));
  output_of(0, {"strip-prefix", path, out, "--prefix", "mod"});
  CHECK(text_of(read_checkpoint_file(out)) == text_of(training("ule.")));
  write_checkpoint_file(path, dict({{"w", w}, {"module.w", w}}));
  CHECK_THAT(
      trouble({"strip-prefix", path, out}), Has("two names would become 'w'"));
  write_checkpoint_file(path, dict({{"module", dict({{"w", w}})}}));
  CHECK_THAT(
      trouble({"strip-prefix", path, out}), Has("first use `convert --flat`"));
  output_of(0, {"convert", path, out, "--flat"});
  CHECK_THAT(output_of(0, {"strip-prefix", out, out}), Has("1 name changed"));
}

} // namespace ddp::test::checkpoint_conversion_test
