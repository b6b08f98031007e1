// The program ddp-checkpoint, run as users run it.
#include <checkpoint/formats/safetensors_index.h>
#include <common/text.h>
#include <tests/support/checkpoint_command.h>
#include <tests/support/torch_zip.h>

#include <nlohmann/json.hpp>

namespace ddp::test::checkpoint_command_test {

using c10::IValue;
using Catch::Matchers::Matches;

void flip_bit(const std::string& path, size_t byte) {
  auto text = read_text(path);
  text.at(byte) = static_cast<char>(text[byte] ^ 1);
  write_text(path, text);
}

void flip_bit_of(const std::string& path, const std::string& content) {
  const auto at = read_text(path).find(content);
  REQUIRE(at != std::string::npos);
  flip_bit(path, at + content.size() / 2);
}

// A zip file as Python writes it after set_crc32_options(False).
std::string without_crcs(std::string text) {
  const std::string header = "PK\x01\x02"; // of the directory
  for (auto at = text.find(header); at != std::string::npos;
       at = text.find(header, at + 1)) {
    text.replace(at + 16, 4, 4, '\0');
  }
  return text;
}

FOLDER_TEST("what is in a file, as JSON") {
  for (const std::string name : {"a.pt", "a.safetensors"}) {
    write_training(
        folder, name, torch::zeros({2, 0, 3}, torch::kBFloat16), std::nan(""));
    const auto json = nlohmann::json::parse(
        output_of(0, {"inspect", folder / name, "--json"}));
    const bool safetensors = name != "a.pt";
    CHECK(
        json["writer"] == (safetensors ? "ddp" : "Python's torch.save or ddp"));
    CHECK(json["digests"] == safetensors);
    CHECK(json["bytes"] == std::filesystem::file_size(folder / name));
    CHECK(
        json["tensors"] ==
        nlohmann::json::parse(
            R"([{"name": "model.w", "shape": [2, 0, 3], "dtype": "bfloat16",
                 "bytes": 0}])"));
    CHECK(
        json["values"] ==
        nlohmann::json::parse(R"([{"name": "epoch", "value": "nan"}])"));
    CHECK(json["totals"]["tensors"] == 1);
  }
}

FOLDER_TEST("inspect reads no tensor") {
  const auto path =
      write_training(folder, "a.pt", torch::full({64}, 7, torch::kByte));
  flip_bit_of(path, std::string(64, 7));
  output_of(0, {"inspect", path});
  output_of(1, {"verify", path});
  // A file with far more bytes than memory.
  const auto large = folder / "large.safetensors";
  write_text(
      large,
      foreign_safetensors(
          R"({"w":{"dtype":"U8","shape":[256,1073741824],)"
          R"("data_offsets":[0,274877906944]}})",
          ""));
  std::filesystem::resize_file(
      large, std::filesystem::file_size(large) + (int64_t{1} << 38));
  CHECK_THAT(
      output_of(0, {"inspect", large}),
      Has("w       [256, 1073741824]  uint8  256.0 GiB"));
}

FOLDER_TEST("verify says what it verified") {
  const auto tensor = torch::full({64}, 7, torch::kByte);
  const std::string content(64, 7);
  const auto own = write_training(folder, "own.pt", tensor);
  const auto flat = write_training(folder, "own.safetensors", tensor);
  const auto libtorch = folder / "libtorch.pt";
  torch::save(tensor, libtorch);
  const auto foreign = folder / "foreign.safetensors";
  write_text(
      foreign,
      foreign_safetensors(
          R"({"w":{"dtype":"U8","shape":[64],"data_offsets":[0,64]}})",
          content));
  const std::vector<std::string> all{"verify", own, flat, libtorch, foreign};
  CHECK_THAT(
      output_of(0, all),
      Matches(
          "ok       .*own.pt: .*, verified by the CRC-32 of each value\n"
          "ok       .*own.safetensors: .*, verified by checksums that cover "
          "every byte\n"
          "ok       .*libtorch.pt: .*, verified by the CRC-32 of each value\n"
          "ok       .*foreign.safetensors: .*, only the header verified .*\n"));
  const auto omitted = folder / "omitted.pt";
  write_text(omitted, without_crcs(read_text(own)));
  CHECK_THAT(
      output_of(0, {"verify", omitted}),
      Has("read, but not verified (the file has no checksums)"));
  CHECK_THAT(output_of(0, {"inspect", omitted}), Has("checksum none"));
  for (const auto& path : {own, flat, libtorch, foreign}) {
    flip_bit_of(path, content);
  }
  CHECK_THAT(
      output_of(1, all),
      Matches("corrupt  .*own.pt: .*corrupt: the content of record .*\n"
              "corrupt  .*own.safetensors: corrupt: tensor .*\n"
              "corrupt  .*libtorch.pt: .*corrupt: the content of record .*\n"
              "ok       .*foreign.safetensors: .*\n"));
  write_text(own, "");
  CHECK_THAT(
      output_of(2, {"verify", folder / "none.pt", own, foreign}),
      Has("No such file",
          "corrupt  " + own + ": it is empty\n",
          "ok       " + foreign));
}

FOLDER_TEST("an index that names itself is refused") {
  const std::string name = "a.safetensors.index.json";
  write_text(folder / name, R"({"weight_map":{"w":")" + name + "\"}}");
  CHECK_THAT(
      output_of(2, {"inspect", folder / name}),
      Has("'" + folder / name + "'", "an index names no other index"));
}

FOLDER_TEST("an index is read with its files") {
  const auto index = folder / "net.safetensors.index.json";
  const auto tensor = torch::full({64}, 7, torch::kByte);
  StateDict tensors;
  tensors.insert("module.a", tensor);
  tensors.insert("module.b", torch::zeros({3}));
  detail::write_sharded_safetensors(index, tensors, 64);
  CHECK_THAT(
      output_of(0, {"verify", index}),
      Matches("ok       .*index.json: .*, verified by checksums that cover "
              "every byte\n"));
  const auto plain = folder / "plain.pt";
  CHECK_THAT(
      output_of(0, {"strip-prefix", index, plain}), Has("2 names changed"));
  const auto converted = output_of(0, {"convert", plain, index});
  CHECK(output_of(0, {"diff", plain, index}).empty());
  const auto first = folder / "net-00001-of-00001.safetensors";
  const auto bytes =
      std::filesystem::file_size(index) + std::filesystem::file_size(first);
  CHECK_THAT(converted, Has("2 tensors, " + size_text(bytes)));
  flip_bit_of(first, std::string(64, 7));
  const auto json =
      nlohmann::json::parse(output_of(0, {"inspect", index, "--json"}));
  CHECK(json["bytes"] == bytes);
  CHECK(json["digests"] == true);
  CHECK(json["tensors"].size() == 2);
  CHECK_THAT(
      output_of(1, {"verify", index}),
      Has("corrupt  " + index, first, "tensor 'a'"));
  std::filesystem::remove(first);
  CHECK_THAT(output_of(1, {"verify", index}), Has(first, "No such file"));
}

FOLDER_TEST("differences are named") {
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  const auto a =
      write_training(folder, "a.pt", torch::tensor({1.F, 2.F, nan, 0.F}));
  const auto differs = [&](const at::Tensor& w, const IValue& epoch = 3) {
    const auto b = write_training(folder, "b.safetensors", w, epoch);
    return output_of(1, {"diff", a, b});
  };
  CHECK(
      differs(torch::tensor({1.F, 2.5F, nan, -0.F})) ==
      "model.w: 2 of 4 elements differ, by 0.5 at most\n");
  CHECK(
      differs(torch::tensor({nan, 2.F, nan, 0.F})) ==
      "model.w: 1 of 4 elements differ; 1 where one is NaN\n");
  CHECK(
      differs(torch::zeros({2, 2})) ==
      "model.w: float32 [4] against float32 [2, 2]\n");
  CHECK(
      differs(torch::zeros({4}, torch::kLong)) ==
      "model.w: float32 [4] against int64 [4]\n");
  CHECK(
      differs(torch::tensor({1.F, 2.F, nan, 0.F}), 3.0) ==
      "epoch: 3 against 3.0\n");
  const auto b = folder / "b.pt";
  write_checkpoint_file(b, 5);
  CHECK_THAT(output_of(0, {"inspect", b}), Has("\n(value) = 5\n"));
  CHECK_THAT(
      output_of(1, {"diff", b, a}), Has("only in " + b + ": (value), 5\n"));
  write_checkpoint_file(
      b, dict({{"model", dict({})}, {"epoch", 3}, {"extra", true}}));
  CHECK(
      output_of(1, {"diff", a, b}) ==
      "only in " + a + ": model.w, float32 [4]\n" + //
          "only in " + b + ": model, {}\n" + //
          "only in " + b + ": extra, true\n");
}

FOLDER_TEST("differences within a tolerance are none") {
  const auto a =
      write_training(folder, "a.pt", torch::arange(1.F, 2'000'001.F), 1.0);
  const auto b = write_training(
      folder, "b.pt", torch::arange(1.F, 2'000'001.F) * 1.001, 1.001);
  CHECK_THAT(
      output_of(1, {"diff", a, b}),
      Matches("model.w: 2,000,000 of 2,000,000 elements differ, by "
              "2000(\\.[0-9]+)? at most\nepoch: 1.0 against 1.001\n"));
  CHECK(output_of(0, {"diff", a, b, "--rtol", "0.002"}).empty());
  CHECK_THAT(
      output_of(1, {"diff", a, b, "--atol", "1000"}),
      Matches("model.w: (999,|1,000,)... of 2,000,000 elements .*\n"));
  CHECK_THAT(trouble({"diff", a, b, "--rtol", "-1"}), Has("--rtol"));
  CHECK_THAT(
      trouble({"diff", a, folder / "none.pt"}), Has("none.pt': No such file"));
}

FOLDER_TEST("dtypes with few operations are compared") {
  for (const auto dtype : {torch::kUInt16, torch::kFloat8_e4m3fn}) {
    const auto write = [&](const std::string& name, float last) {
      const auto w = torch::tensor({1.F, 2.F, last}).to(dtype);
      return write_training(folder, name, w);
    };
    CHECK(
        output_of(1, {"diff", write("a.pt", 3), write("b.pt", 1)}) ==
        "model.w: 1 of 3 elements differ, by 2 at most\n");
  }
}

FOLDER_TEST("objects that cannot be read are named, and the rest is read") {
  const auto object = call_of("argparse\nNamespace\n", "");
  const auto file = [&](const std::string& name, const std::string& more) {
    const auto w = unicode("w") + tensor_of(kZero, kFour, kOne);
    write_text(
        folder / name,
        torch_file_of("}(" + unicode("model") + "}(" + w + "u" + more + "u"));
    return folder / name;
  };
  const auto path = file(
      "a.pt",
      unicode("args") + object + unicode("ema") + "}(" + unicode("w") + "K\1" +
          unicode("config") + object + "u");
  CHECK_THAT(
      output_of(0, {"inspect", path}),
      Has("\nnot readable: args\nnot readable: ema.config\n", "\nmodel.w "));
  const auto json =
      nlohmann::json::parse(output_of(0, {"inspect", path, "--json"}));
  CHECK(
      json["not_readable"] ==
      nlohmann::json::parse(R"(["args", "ema.config"])"));

  const auto listed = "not readable in " + path + ": args\n" + //
      "not readable in " + path + ": ema.config\n";
  CHECK(output_of(0, {"diff", path, path}) == listed + listed);
  const auto other =
      file("b.pt", unicode("ema") + "}(" + unicode("w") + "K\1u");
  CHECK(output_of(1, {"diff", path, other}) == listed);

  const auto out = folder / "out.pt";
  output_of(0, {"convert", path, out, "--entry", "model"});
  CHECK(
      text_of(read_checkpoint_file(out)) ==
      text_of(dict({{"w", torch::tensor({1.F, 2.F, 3.F, 4.F})}})));
  CHECK_THAT(
      trouble({"convert", path, out, "--entry", "ema"}),
      Has("'ema.config' of '" + path + "' is or contains an object"));
  for (const auto* command : {"convert", "strip-prefix"}) {
    CHECK_THAT(
        trouble({command, path, out}),
        Has("'args' of '" + path, "with `convert --entry NAME`"));
  }
}

FOLDER_TEST("what cannot be done is said in a line") {
  write_text(folder / "empty.pt", "");
  write_text(folder / "text.pt", "no checkpoint, but more than 22 bytes");
  const std::vector<std::pair<std::vector<std::string>, std::string>> expected{
      {{}, "ddp-checkpoint --help"},
      {{"foo"}, "unknown subcommand 'foo'"},
      {{"inspect"}, "FILE is required"},
      {{"inspect", folder / "none.pt"}, "none.pt': No such file"},
      {{"inspect", folder.path()}, "a directory"},
      {{"inspect", folder / "empty.pt"}, "is empty"},
      {{"inspect", folder / "text.pt"}, "not a zip file"},
  };
  for (const auto& [arguments, text] : expected) {
    CHECK_THAT(trouble(arguments), Has(text));
  }
}

TEST_CASE("help has an example") {
  for (const std::string name :
       {"inspect", "verify", "convert", "strip-prefix", "diff"}) {
    CHECK_THAT(
        output_of(0, {name, "--help"}), Has("\nExample: ddp-checkpoint "));
  }
  CHECK_THAT(output_of(0, {"--version"}), Matches("ddp-checkpoint [0-9.]+\n"));
}

FOLDER_TEST("output that cannot be written") {
  auto many = detail::new_dict();
  for (int i = 0; i < 5000; ++i) { // more than a pipe holds
    many.insert("a.rather.long.name." + std::to_string(i), torch::zeros({1}));
  }
  write_checkpoint_file(folder / "a.pt", many);
  const auto shell = [&](const std::string& script) {
    const auto program = variable("DDP_CHECKPOINT");
    return run(Command{{"bash", "-c", script, program, folder / "a.pt"}, {}},
               kLong)
        .output;
  };
  const std::string closed =
      "\"$0\" inspect \"$1\" | head -c 1; echo \" ${PIPESTATUS[0]}\"";
  CHECK(shell(closed) == "/ 141\n");
  CHECK(shell("trap '' PIPE; " + closed) == "/ 141\n");
  CHECK(
      shell("\"$0\" inspect \"$1\" >/dev/full; echo $?") ==
      "ddp-checkpoint: cannot write to standard output\n2\n");
}

} // namespace ddp::test::checkpoint_command_test
