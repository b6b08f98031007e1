#include <checkpoint/command/file_info.h>
#include <checkpoint/command/subcommands.h>
#include <checkpoint/command/text.h>
#include <checkpoint/formats/common/byte_source.h>
#include <checkpoint/formats/common/naming_file.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/commands/program.h>

namespace ddp::command {
namespace {

// How the file was verified.
const char* verified(const FileInfo& info) {
  if (info.is_safetensors) {
    return info.has_checksums
        ? "verified by checksums that cover every byte"
        : "only the header verified (the file has no checksums)";
  }
  return info.has_checksums
      ? "verified by the CRC-32 of each value"
      : "read, but not verified (the file has no checksums)";
}

// The error's text without the file's name.
std::string reason(const c10::Error& error, const std::string& path) {
  const auto start = "cannot read '" + path + "': ";
  return printable(replaced(error.what_without_backtrace(), start, ""));
}

int verify(const std::string& path) {
  try {
    detail::naming_file(path, [&] { // a missing file is not corrupt
      const detail::FileSource file(path);
    });
  } catch (const c10::Error& error) {
    return say("ddp-checkpoint", error.what_without_backtrace());
  }
  try {
    const auto info = read_file_info(path, /*strict=*/false);
    verify_checkpoint_file(path);
    std::cout << "ok       " << path << ": " << size_text(info.bytes) << ", "
              << verified(info) << std::endl;
    return 0;
  } catch (const c10::Error& error) {
    std::cout << "corrupt  " << path << ": " << reason(error, path)
              << std::endl;
    return kExitNegative;
  }
}

} // namespace

void add_verify(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "verify", "Reads checkpoints completely and reports corrupt parts.");
  const auto files = std::make_shared<std::vector<std::string>>();
  command->add_option("FILE", *files)->required()->type_name("");
  command->footer(
      ".pt files have a CRC-32 of each value, which Python can omit. "
      "safetensors files\n"
      "of this library have checksums of every byte; of other safetensors "
      "files, only\n"
      "the header and the length are checked.\n"
      "Exit code: 0 if all files are intact, 1 if one is corrupt or has values "
      "that even\n"
      "LoadOptions().strict(false) does not omit, 2 if one does not exist.\n"
      "\n"
      "Example: ddp-checkpoint verify runs/*.pt");
  command->callback([files, &exit_code] {
    for (const auto& path : *files) {
      exit_code = std::max(exit_code, verify(path));
    }
  });
}

} // namespace ddp::command
