#include <ddp/debug/command/comparison.h>

#include <CLI/CLI.hpp>

#include <csignal>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

namespace ddp::debug::command {
namespace {

constexpr int kExitDisagree = 1;
constexpr int kExitTrouble = 2;

int say(const std::string& text) {
  std::cerr << "ddp-flightrecorder: " << text << std::endl;
  return kExitTrouble;
}

int run(int argc, char** argv) {
  CLI::App app{"Says where the ranks of a job disagree.", "ddp-flightrecorder"};
  app.set_version_flag("--version", "ddp-flightrecorder " DDP_VERSION);
  std::vector<std::string> paths;
  app.add_option("PATH", paths, "records, or folders of them")
      ->required()
      ->type_name("");
  app.footer(
      "Records are what ranks with DDP_DEBUG=info or detail write to "
      "ddp-debug/rank_*.json\nwhen a collective fails, when they crash, on "
      "SIGUSR1 and on SIGTERM.\nExit code: 0 where all ranks of the job agree, "
      "1 where they do not or one has no\nrecord, 2 where a record cannot be "
      "read.\n\n"
      "Example: ddp-flightrecorder ddp-debug");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what() << '\n';
    return 0;
  } catch (const CLI::ParseError& error) {
    return say(std::string(error.what()) + " (see ddp-flightrecorder --help)");
  }
  const bool agree = compare(read_records(paths), std::cout);
  if (!std::cout.flush()) {
    return say("cannot write to standard output");
  }
  return agree ? 0 : kExitDisagree;
}

} // namespace
} // namespace ddp::debug::command

int main(int argc, char** argv) {
  // A closed pipe, as by `| head`, ends it.
  std::signal(SIGPIPE, SIG_DFL);
  try {
    return ddp::debug::command::run(argc, argv);
  } catch (const std::exception& error) {
    return ddp::debug::command::say(error.what());
  }
}
