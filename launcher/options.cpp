#include <launcher/options.h>

#include <algorithm>
#include <cstdlib>

#include <CLI/CLI.hpp>

#include <launcher/launch_error.h>
#include <launcher/processors.h>

namespace ddp {
namespace {

[[noreturn]] void usage_error(const std::string& message) {
  throw LaunchError(kExitUsage, message + " (see ddprun --help)");
}

int ranks_from(const std::string& text) {
  if (text == "cpu") {
    return available_cpus();
  }
  if (text == "gpu" || text == "auto") {
    const int gpus = visible_gpus(std::getenv("CUDA_VISIBLE_DEVICES"));
    if (gpus == 0 && text == "gpu") {
      usage_error(
          "--nproc-per-node gpu: no GPU is visible (/dev/nvidia*, "
          "CUDA_VISIBLE_DEVICES); try --nproc-per-node cpu");
    }
    return gpus > 0 ? gpus : available_cpus();
  }
  int ranks = 0;
  const bool is_number =
      text.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number || !CLI::detail::lexical_cast(text, ranks) || ranks < 1) {
    usage_error(
        "--nproc-per-node is '" + text +
        "', expected a positive number, cpu, gpu or auto");
  }
  return ranks;
}

// How many of the arguments are ddprun's own: those before the program or "--".
size_t count_own_arguments(
    const CLI::App& app,
    const std::vector<std::string>& arguments) {
  size_t i = 0;
  while (i < arguments.size() && arguments[i] != "--" &&
         arguments[i].size() > 1 && arguments[i][0] == '-') {
    const CLI::Option* option = app.get_option_no_throw(arguments[i]);
    const bool takes_next = option && option->get_items_expected_min() > 0;
    i += takes_next ? 2 : 1;
  }
  return std::min(i, arguments.size());
}

void parse(
    CLI::App& app,
    std::vector<std::string> own,
    LaunchOptions* options) {
  std::reverse(own.begin(), own.end()); // as CLI11 wants them
  try {
    app.parse(std::move(own));
  } catch (const CLI::CallForHelp&) {
    options->answer = app.help();
  } catch (const CLI::CallForVersion& version) {
    options->answer = std::string(version.what()) + "\n";
  } catch (const CLI::ParseError& error) {
    usage_error(error.what());
  }
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: ddprun [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n";
  }
};

// What the options say, before it is checked and put into LaunchOptions.
struct RawOptions {
  std::string ranks = "1";
  double grace_seconds = 30;
  bool no_python = false; // says what is so anyway
};

void declare_options(CLI::App& app, LaunchOptions* options, RawOptions* raw) {
  app.formatter(std::make_shared<HelpFormatter>());
  app.add_option(
         "--nproc-per-node,--nproc_per_node",
         raw->ranks,
         "ranks to start: a number, cpu, gpu, or auto (default 1)")
      ->type_name("N");
  app.add_flag(
      "--no-python,--no_python",
      raw->no_python,
      "accepted; programs always run as they are");
  app.add_option(
         "--grace",
         raw->grace_seconds,
         "seconds from SIGTERM to SIGKILL (default 30)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option(
         "--master-addr,--master_addr",
         options->master_addr,
         "where rank 0's store listens (default 127.0.0.1)")
      ->type_name("HOST");
  app.add_option(
         "--master-port,--master_port",
         options->master_port,
         "its port (default: a free one)")
      ->type_name("PORT")
      ->check(CLI::Range(0, 65535));
  app.set_version_flag("--version", "ddprun " DDP_VERSION);
}

} // namespace

LaunchOptions parse_options(int argc, const char* const* argv) {
  LaunchOptions options;
  RawOptions raw;
  CLI::App app{
      "Runs a program as N ranks on this machine and ends them together.",
      "ddprun"};
  declare_options(app, &options, &raw);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const size_t own = count_own_arguments(app, arguments);
  const auto end_of_own = arguments.begin() + static_cast<ptrdiff_t>(own);
  parse(app, {arguments.begin(), end_of_own}, &options);
  if (!options.answer.empty()) {
    return options;
  }
  options.nproc_per_node = ranks_from(raw.ranks);
  options.grace =
      std::chrono::milliseconds(static_cast<int64_t>(raw.grace_seconds * 1000));
  options.command.assign(end_of_own, arguments.end());
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  }
  if (options.command.empty() || options.command.front().empty()) {
    usage_error("no program to run was given");
  }
  return options;
}

} // namespace ddp
