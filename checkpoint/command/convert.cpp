#include <c10/util/StringUtil.h>
#include <checkpoint/command/leaves.h>
#include <checkpoint/command/rewritten_file.h>
#include <checkpoint/command/subcommands.h>
#include <checkpoint/formats/tree_flatten.h>
#include <checkpoint/formats/values.h>
#include <checkpoint/prepared_file.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/internal/check.h>

#include <memory>

namespace ddp::command {
namespace {

struct ConvertOptions {
  std::string input;
  std::string output;
  std::string entry;
  bool flat = false;
};

c10::IValue entry_of(const c10::IValue& content, const std::string& name) {
  std::vector<std::string> names;
  if (content.isGenericDict()) {
    for (const auto& entry : content.toGenericDict()) {
      if (entry.key() == name) {
        return entry.value();
      }
      names.push_back(detail::key_text(entry.key()));
    }
  }
  DDP_THROW(
      ValueError,
      "the file has no entry '{}'; it has {}",
      name,
      names.empty() ? "none" : c10::Join(", ", names));
}

c10::IValue flattened(const c10::IValue& content) {
  StateDict tensors;
  for (const auto& [name, value] : leaves_of(content, /*whole_lists=*/true)) {
    if (value.isGenericDict()) { // empty: of a module without parameters
      continue;
    }
    DDP_CHECK_VALUE(
        value.isTensor(),
        "--flat requires tensors, but '{}' is not a tensor; select a part of "
        "the file with --entry",
        name);
    tensors.insert(name, value.toTensor().detach()); // as Python's state_dict
  }
  return detail::to_generic_dict(tensors);
}

void convert(const ConvertOptions& options) {
  detail::check_extension(options.output);
  auto checkpoint = read_checkpoint(options.input, options.entry);
  if (!options.entry.empty()) {
    checkpoint.content = entry_of(checkpoint.content, options.entry);
  }
  if (options.flat) {
    checkpoint.content = flattened(checkpoint.content);
  }
  write_checkpoint(options.output, checkpoint);
}

} // namespace

void add_convert(CLI::App& app, int& /*exit_code*/) {
  auto* command = app.add_subcommand(
      "convert",
      "Converts a checkpoint to the format that OUT's extension selects.");
  const auto options = std::make_shared<ConvertOptions>();
  command->add_option("IN", options->input)->required()->type_name("");
  command
      ->add_option(
          "OUT", options->output, "output file (.pt, .pth or .safetensors)")
      ->required()
      ->type_name("");
  command
      ->add_option(
          "--entry",
          options->entry,
          "convert only this entry, such as \"model\"")
      ->type_name("NAME");
  command->add_flag(
      "--flat", options->flat, "write one dict of tensors with dotted names");
  command->footer(
      "torch::save writes a module as nested dicts; --flat converts them to "
      "the form\n"
      "that Python's load_state_dict expects.\n"
      "\n"
      "Example: ddp-checkpoint convert training.pt weights.safetensors --entry "
      "model");
  command->callback([options] { convert(*options); });
}

} // namespace ddp::command
