#include <c10/util/Exception.h>
#include <checkpoint/command/subcommands.h>
#include <checkpoint/command/text.h>

#include <csignal>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>

namespace ddp::command {
namespace {

int say(const std::string& text) {
  std::cerr << "ddp-checkpoint: " << printable(text) << std::endl;
  return kExitTrouble;
}

// CLI11 would only say that a subcommand is required.
void check_subcommand(const CLI::App& app, const std::string& name) {
  for (const auto* command : app.get_subcommands({})) {
    if (command->get_name() == name) {
      return;
    }
  }
  throw CLI::ParseError(
      "unknown subcommand '" + name + "'", CLI::ExitCodes::ExtrasError);
}

int run(int argc, char** argv) {
  int exit_code = 0;
  CLI::App app{"Looks at checkpoints and changes them.", "ddp-checkpoint"};
  app.set_version_flag("--version", "ddp-checkpoint " DDP_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Files are those of Python's torch.save, LibTorch's torch::save, "
      "safetensors, and\nddp. ddp-checkpoint SUBCOMMAND --help says more.");
  add_inspect(app, exit_code);
  add_verify(app, exit_code);
  add_convert(app, exit_code);
  add_strip_prefix(app, exit_code);
  add_diff(app, exit_code);
  try {
    if (argc > 1 && argv[1][0] != '-') {
      check_subcommand(app, argv[1]);
    }
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what() << '\n';
  } catch (const CLI::ParseError& error) {
    return say(std::string(error.what()) + " (see ddp-checkpoint --help)");
  }
  if (!std::cout.flush()) {
    return say("cannot write to standard output");
  }
  return exit_code;
}

} // namespace
} // namespace ddp::command

int main(int argc, char** argv) {
  // A closed pipe, as by `| head`, ends it.
  std::signal(SIGPIPE, SIG_DFL);
  try {
    return ddp::command::run(argc, argv);
  } catch (const c10::Error& error) {
    return ddp::command::say(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return ddp::command::say(error.what());
  }
}
