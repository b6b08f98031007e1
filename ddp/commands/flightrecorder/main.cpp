#include <ddp/commands/flightrecorder/comparison.h>

#include <ddp/commands/program.h>

namespace ddp::command {
namespace {

constexpr int kExitDisagree = 1;
constexpr const char* kProgram = "ddp-flightrecorder";

int run(int argc, char** argv) {
  CLI::App app{"Reports where the ranks of a job disagree.", kProgram};
  app.set_version_flag("--version", "ddp-flightrecorder " DDP_VERSION);
  std::vector<std::string> paths;
  app.add_option("PATH", paths, "records, or folders of them")
      ->required()
      ->type_name("");
  app.footer(
      "Ranks with DDP_DEBUG=info or detail write records to "
      "ddp-debug/rank_*.json\n"
      "when a collective fails, when they crash, on SIGUSR1 and on SIGTERM.\n"
      "Exit code: 0 if all ranks of the job agree, 1 if they do not or one has "
      "no\n"
      "record, 2 if a record cannot be read.\n"
      "\n"
      "Example: ddp-flightrecorder ddp-debug");
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  return compare(read_records(paths), std::cout) ? 0 : kExitDisagree;
}

} // namespace
} // namespace ddp::command

int main(int argc, char** argv) {
  return ddp::command::run_program(
      ddp::command::kProgram, ddp::command::run, argc, argv);
}
