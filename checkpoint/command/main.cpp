#include <c10/util/Exception.h>
#include <checkpoint/command/subcommands.h>
#include <checkpoint/command/text.h>
#include <ddp/commands/program.h>

namespace ddp::command {
namespace {

constexpr const char* kProgram = "ddp-checkpoint";

// CLI11 would report an unknown name as a missing subcommand.
bool is_subcommand(const CLI::App& app, const std::string& name) {
  const auto all = app.get_subcommands({});
  return std::any_of(all.begin(), all.end(), [&](const auto* each) {
    return each->get_name() == name;
  });
}

int run(int argc, char** argv) {
  int exit_code = 0;
  CLI::App app{"Inspects and converts checkpoints.", kProgram};
  app.set_version_flag("--version", "ddp-checkpoint " DDP_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Supports safetensors files and files written by Python's torch.save, "
      "LibTorch's\n"
      "torch::save or ddp. For details: ddp-checkpoint SUBCOMMAND --help");
  add_inspect(app, exit_code);
  add_verify(app, exit_code);
  add_convert(app, exit_code);
  add_strip_prefix(app, exit_code);
  add_diff(app, exit_code);
  if (argc > 1 && argv[1][0] != '-' && !is_subcommand(app, argv[1])) {
    return say(
        kProgram,
        "unknown subcommand '" + printable(argv[1]) +
            "' (see ddp-checkpoint --help)");
  }
  try {
    if (const auto code = parse(app, argc, argv)) {
      return *code;
    }
  } catch (const c10::Error& error) {
    return say(kProgram, printable(error.what_without_backtrace()));
  }
  return exit_code;
}

} // namespace
} // namespace ddp::command

int main(int argc, char** argv) {
  return ddp::command::run_program(
      ddp::command::kProgram, ddp::command::run, argc, argv);
}
