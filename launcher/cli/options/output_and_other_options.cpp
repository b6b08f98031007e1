#include <launcher/cli/options/option_table.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

using Options = LaunchOptions;
using Value = OptionValue;
using Table = std::vector<CommandOption>;

CommandOption answer(const char* name, const char* help, char letter = '\0') {
  CommandOption option{name, nullptr, help, nullptr, letter};
  option.from_environment = false;
  option.answers = true;
  return option;
}

} // namespace

Table output_options() {
  Table table = {
      {"redirects",
       "STREAMS",
       "Write streams of the ranks into files instead of showing them: 1 "
       "(standard output), 2 (standard error), 3 (both), or these for local "
       "ranks as in 0:1,4-7:3. Default: 0.",
       &set<streams_of, &Options::output, &OutputOptions::redirects>,
       'r'},
      {"tee",
       "STREAMS",
       "Write streams into files and show them; as --redirects. Default: 0.",
       &set<streams_of, &Options::output, &OutputOptions::tee>,
       't'},
      {"log-dir",
       "FOLDER",
       "Where these files are, in a folder for each run: "
       "FOLDER/RUN/attempt_N/RANK/{stdout,stderr}.log. Default: a new folder, "
       "which is named.",
       &set<text_of, &Options::output, &OutputOptions::log_dir>},
      {"output",
       "KIND",
       "How output reaches ddprun: lines (through pipes, shown as whole "
       "lines), raw (ranks write to ddprun's own streams) or pty (through a "
       "terminal each, so that programs do not buffer). Default: lines.",
       &set<output_mode_of, &Options::output, &OutputOptions::mode>},
      {"log-line-prefix",
       "TEXT",
       "Written before each line, with ${rank}, ${local_rank}, ${role_name}, "
       "${role}, ${node}, ${host} and ${time} replaced. Default: "
       "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, else \"[${rank}] \" where there "
       "are several ranks.",
       &set<text_of, &Options::output, &OutputOptions::line_prefix>},
      {"local-ranks-filter",
       "RANKS",
       "Show the output of these local ranks only, such as 0,4-7. Files have "
       "all.",
       &set<ranks_of, &Options::output, &OutputOptions::shown_ranks>},
      {"duplicate-stdout-filters",
       "TEXTS",
       "Lines of standard output with one of these texts (between commas; ,, "
       "for a comma) go also into filtered_stdout.log.",
       &set<texts_of, &Options::output, &OutputOptions::stdout_filters>},
      {"duplicate-stderr-filters",
       "TEXTS",
       "The same for standard error and filtered_stderr.log.",
       &set<texts_of, &Options::output, &OutputOptions::stderr_filters>},
  };
  return in_group(OptionGroup::kOutput, std::move(table));
}

Table torchrun_options() {
  Table table = {
      {"monitor-interval",
       "SECONDS",
       "No effect: ddprun looks at no interval, but acts on events.",
       [](Options&, const Value& value) { seconds_of(value); }},
      {"start-method", "NAME", "No effect: for Python functions."},
      {"event-log-handler",
       "NAME",
       "No effect: ddprun records no such events (see --report)."},
      {"logs-specs", "NAME", "No effect: for Python classes."},
      {"signals-to-handle",
       "LIST",
       "No effect: SIGTERM, SIGINT, SIGHUP and SIGQUIT end the job, and others "
       "are passed on to the ranks."},
  };
  return in_group(OptionGroup::kTorchrun, std::move(table));
}

Table other_options() {
  return {
      {"dry-run",
       nullptr,
       "Print what would be run, and run nothing.",
       &set<given, &Options::dry_run>},
      answer("version", "Print the version."),
      answer("help", "Print this.", 'h'),
  };
}

} // namespace ddp
