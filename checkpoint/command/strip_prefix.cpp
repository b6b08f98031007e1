#include <checkpoint/command/rewritten_file.h>
#include <checkpoint/command/subcommands.h>
#include <checkpoint/command/text.h>
#include <checkpoint/prepared_file.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/internal/check.h>
#include <ddp/support/containers.h>

#include <algorithm>
#include <iostream>
#include <memory>

namespace ddp::command {
namespace {

using Dict = c10::impl::GenericDict;

struct StripOptions {
  std::string input;
  std::string output;
  std::string prefix = "module.";
};

bool is_optimizer(const Dict& dict) {
  return dict.contains("state") && dict.contains("param_groups");
}

bool has_named_tensor(const Dict& dict) {
  return std::any_of(dict.begin(), dict.end(), [](const auto& entry) {
    return entry.key().isString() && entry.value().isTensor();
  });
}

// Adds the number of changed names to `count`.
c10::IValue stripped(
    const c10::IValue& value,
    const std::string& prefix,
    uint64_t& count) {
  if (value.isList()) {
    auto list = detail::new_list();
    for (const c10::IValue& item : value.toListRef()) {
      list.push_back(stripped(item, prefix, count));
    }
    return list;
  }
  if (value.isTuple()) {
    std::vector<c10::IValue> items;
    for (const auto& item : value.toTupleRef().elements()) {
      items.push_back(stripped(item, prefix, count));
    }
    return c10::ivalue::Tuple::create(std::move(items));
  }
  if (!value.isGenericDict() || is_optimizer(value.toGenericDict())) {
    return value;
  }
  auto result = detail::new_dict();
  const bool names_tensors = has_named_tensor(value.toGenericDict());
  for (const auto& entry : value.toGenericDict()) {
    auto key = entry.key();
    if (names_tensors && key.isString() &&
        key.toStringRef().rfind(prefix, 0) == 0) {
      key = key.toStringRef().substr(prefix.size());
      ++count;
    }
    DDP_CHECK_VALUE(
        result.insert(key, stripped(entry.value(), prefix, count)).second,
        "two names would become '{}'",
        key.toStringRef());
  }
  return result;
}

void strip_prefix(const StripOptions& options) {
  detail::check_extension(options.output);
  DDP_CHECK_VALUE(!options.prefix.empty(), "the prefix is empty");
  auto checkpoint = read_checkpoint(options.input);
  uint64_t count = 0;
  checkpoint.content = stripped(checkpoint.content, options.prefix, count);
  DDP_CHECK_VALUE(
      count > 0,
      "no tensor of '{}' has a name that begins with '{}'; if the file has "
      "nested dicts, as torch::save writes, first use `convert --flat`",
      options.input,
      options.prefix);
  write_checkpoint(options.output, checkpoint);
  std::cout << counted(count, "name") << " changed\n";
}

} // namespace

void add_strip_prefix(CLI::App& app, int& /*exit_code*/) {
  auto* command = app.add_subcommand(
      "strip-prefix", "Drops a prefix from the names of tensors.");
  const auto options = std::make_shared<StripOptions>();
  command->add_option("IN", options->input)->required()->type_name("");
  command->add_option("OUT", options->output)->required()->type_name("");
  command
      ->add_option("--prefix", options->prefix, "the prefix (default module.)")
      ->type_name("PREFIX");
  command->footer(
      "Changes the names in weights and in each entry of a training state, "
      "such "
      "as\n\"model\", but not those in an optimizer's state.\n\n"
      "Example: ddp-checkpoint strip-prefix wrapped.pt plain.pt");
  command->callback([options] { strip_prefix(*options); });
}

} // namespace ddp::command
