#include <checkpoint/command/file_info.h>
#include <checkpoint/command/json_value.h>
#include <checkpoint/command/leaves.h>
#include <checkpoint/command/subcommands.h>
#include <checkpoint/command/text.h>
#include <checkpoint/formats/values.h>
#include <common/text_table.h>

#include <iostream>
#include <memory>
#include <unordered_set>
#include <utility>

namespace ddp::command {
namespace {

struct InspectOptions {
  std::string file;
  bool json = false;
};

void print_head(const std::string& path, const FileInfo& info) {
  std::cout << path << '\n'
            << "  format   "
            << (info.is_safetensors ? "safetensors" : ".pt (zip)");
  if (!info.writer.empty()) {
    std::cout << ", written by " << info.writer;
  }
  std::cout << "\n  size     " << size_text(info.bytes);
  if (info.bytes >= 1024) {
    std::cout << " (" << grouped(info.bytes) << " bytes)";
  }
  std::cout << "\n  checksum "
            << (!info.has_checksums       ? "none"
                    : info.is_safetensors ? "of every byte"
                                          : "CRC-32 of each record")
            << '\n';
  for (const auto& [key, value] : info.metadata) {
    std::cout << "  metadata " << printable(key) << " = "
              << value_text(value, kLineWidth / 2) << '\n';
  }
}

// Prints the parts of a training state.
void print_entries(const c10::IValue& content) {
  if (!content.isGenericDict()) {
    return;
  }
  const auto dict = content.toGenericDict();
  if (std::all_of(dict.begin(), dict.end(), [](const auto& entry) {
        return entry.value().isTensor();
      })) {
    return;
  }
  TextTable table(1, kLineWidth);
  table.add({"entry", "tensors", "elements", "size"});
  for (const auto& entry : dict) {
    const auto extent = extent_of(entry.value());
    if (extent.tensors > 0) { // print_values prints the other leaves
      table.add(
          {printable(detail::key_text(entry.key())),
           grouped(extent.tensors),
           grouped(extent.elements),
           size_text(extent.bytes)});
    }
  }
  std::cout << '\n';
  std::cout << table.text();
}

void print_tensors(const std::vector<Leaf>& leaves) {
  TextTable table(1, kLineWidth);
  table.add({"tensor", "shape", "dtype", "size"});
  Extent total;
  std::unordered_set<const void*> storages;
  for (const auto& leaf : leaves) {
    if (leaf.value.isTensor()) {
      const auto& tensor = leaf.value.toTensor();
      total.add(tensor);
      storages.insert(tensor.storage().unsafeGetStorageImpl());
      table.add(
          {name_text(leaf.name),
           shape_text(tensor),
           dtype_text(tensor),
           size_text(tensor.nbytes())});
    }
  }
  std::cout << '\n';
  if (total.tensors > 0) {
    std::cout << table.text();
  }
  std::cout << counted(total.tensors, "tensor") << ", "
            << counted(total.elements, "element") << ", "
            << size_text(total.bytes);
  if (storages.size() < total.tensors) {
    std::cout << "; " << grouped(total.tensors - storages.size())
              << " of them share memory with others";
  }
  std::cout << '\n';
}

void print_values(const std::vector<Leaf>& leaves) {
  constexpr size_t kLeast = 24;
  bool first = true;
  for (const auto& leaf : leaves) {
    if (leaf.value.isTensor()) {
      continue;
    }
    std::cout << (first ? "\n" : "");
    first = false;
    const auto left = name_text(leaf.name) + " = ";
    const auto used = std::min(character_count(left), kLineWidth - kLeast);
    std::cout << left << value_text(leaf.value, kLineWidth - used) << '\n';
  }
}

void print_omitted(const std::vector<std::string>& places) {
  const char* before = "\n";
  for (const auto& place : places) {
    std::cout << std::exchange(before, "")
              << "not readable: " << printable(place) << '\n';
  }
}

Json to_json(const std::string& path, const FileInfo& info) {
  auto tensors = Json::array();
  auto values = Json::array();
  Extent total;
  for (const auto& leaf : leaves_of(info.content, /*whole_lists=*/true)) {
    if (!leaf.value.isTensor()) {
      values.push_back({{"name", leaf.name}, {"value", json_of(leaf.value)}});
      continue;
    }
    const auto& tensor = leaf.value.toTensor();
    total.add(tensor);
    tensors.push_back(
        {{"name", leaf.name},
         {"shape", tensor.sizes().vec()},
         {"dtype", dtype_text(tensor)},
         {"bytes", tensor.nbytes()}});
  }
  return {
      {"file", path},
      {"format", info.is_safetensors ? "safetensors" : "torch"},
      {"writer", info.writer.empty() ? Json() : Json(info.writer)},
      {"bytes", info.bytes},
      {"digests", info.is_safetensors && info.has_checksums},
      {"metadata", info.metadata},
      {"tensors", std::move(tensors)},
      {"values", std::move(values)},
      {"not_readable", info.omitted},
      {"totals",
       {{"tensors", total.tensors},
        {"elements", total.elements},
        {"bytes", total.bytes}}}};
}

void inspect(const InspectOptions& options) {
  const auto info = read_file_info(options.file, /*strict=*/false);
  if (options.json) {
    std::cout << dump(to_json(options.file, info)) << '\n';
    return;
  }
  print_head(options.file, info);
  print_entries(info.content);
  const auto leaves = leaves_of(info.content, /*whole_lists=*/true);
  print_values(leaves);
  print_omitted(info.omitted);
  print_tensors(leaves);
}

} // namespace

void add_inspect(CLI::App& app, int& /*exit_code*/) {
  auto* command =
      app.add_subcommand("inspect", "Lists the contents of a checkpoint.");
  const auto options = std::make_shared<InspectOptions>();
  command->add_option("FILE", options->file)->required()->type_name("");
  command->add_flag("--json", options->json, "print JSON, for programs");
  command->footer(
      "Does not read the contents of tensors; `verify` reads them.\n\n"
      "Example: ddp-checkpoint inspect training.pt");
  command->callback([options] { inspect(*options); });
}

} // namespace ddp::command
