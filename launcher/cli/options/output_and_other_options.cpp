#include <launcher/cli/options/option_table.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

using Options = LaunchOptions;
using Value = OptionValue;
using Table = std::vector<CommandOption>;

Table stream_options() {
  const auto group = OptionGroup::kOutput;
  return {
      {group,
       "redirects",
       "STREAMS",
       "Write streams of the ranks into files instead of showing them: 1 "
       "(standard output), 2 (standard error), 3 (both), or these for local "
       "ranks as in 0:1,4-7:3. Default: 0.",
       [](Options& options, const Value& value) {
         options.output.redirects = streams_of(value);
       },
       "1 2 3",
       'r'},
      {group,
       "tee",
       "STREAMS",
       "Write streams into files and show them; as --redirects. Default: 0.",
       [](Options& options, const Value& value) {
         options.output.tee = streams_of(value);
       },
       "1 2 3",
       't'},
  };
}

Table log_file_options() {
  const auto group = OptionGroup::kOutput;
  return {
      {group,
       "log-dir",
       "FOLDER",
       "Where these files are, in a folder for each run: "
       "FOLDER/RUN/attempt_N/RANK/{stdout,stderr}.log. "
       "Default: a new folder, which is named.",
       [](Options& options, const Value& value) {
         options.output.log_dir = value.text;
       },
       "FOLDER"},
      {group,
       "log-max-size",
       "BYTES",
       "A log file that would grow beyond is renamed to *.log.1 and begun "
       "anew; 10M and the like (K, M, G) are understood. Default: no bound.",
       [](Options& options, const Value& value) {
         options.output.log_max_bytes = bytes_of(value);
       }},
  };
}

Table display_options() {
  const auto group = OptionGroup::kOutput;
  return {
      {group,
       "output",
       "KIND",
       "How output reaches ddprun: lines (through pipes, shown as whole "
       "lines), raw (ranks write to ddprun's own streams) or pty (through a "
       "terminal each, so that programs do not buffer). Default: lines.",
       [](Options& options, const Value& value) {
         options.output.mode = output_mode_of(value);
       },
       "lines raw pty"},
      {group,
       "log-line-prefix",
       "TEXT",
       "Written before each line, with ${rank}, ${local_rank}, ${role_name}, "
       "${role}, ${node}, ${host} and ${time} replaced. Default: "
       "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, else \"[${rank}] \" where "
       "there are several ranks.",
       [](Options& options, const Value& value) {
         options.output.line_prefix = value.text;
       }},
  };
}

Table filter_options() {
  const auto group = OptionGroup::kOutput;
  return {
      {group,
       "local-ranks-filter",
       "RANKS",
       "Show the output of these local ranks only, such as 0,4-7. Files have "
       "all.",
       [](Options& options, const Value& value) {
         options.output.shown_ranks = ranks_of(value);
       }},
      {group,
       "duplicate-stdout-filters",
       "TEXTS",
       "Lines of standard output with one of these texts (between commas; ,, "
       "for a comma) go also into filtered_stdout.log.",
       [](Options& options, const Value& value) {
         options.output.stdout_filters = texts_of(value);
       }},
      {group,
       "duplicate-stderr-filters",
       "TEXTS",
       "The same for standard error and filtered_stderr.log.",
       [](Options& options, const Value& value) {
         options.output.stderr_filters = texts_of(value);
       }},
  };
}

Table torchrun_options() {
  const auto group = OptionGroup::kTorchrun;
  return {
      {group,
       "monitor-interval",
       "SECONDS",
       "No effect: ddprun looks at no interval, but acts on events.",
       [](Options&, const Value& value) { seconds_of(value); }},
      {group,
       "start-method",
       "NAME",
       "No effect: for Python functions.",
       nullptr,
       "spawn fork forkserver"},
      {group,
       "event-log-handler",
       "NAME",
       "No effect: ddprun records no such events (see --report)."},
      {group, "logs-specs", "NAME", "No effect: for Python classes."},
      {group,
       "signals-to-handle",
       "LIST",
       "No effect: SIGTERM, SIGINT, SIGHUP and SIGQUIT end the job, and others "
       "are passed on to the ranks."},
  };
}

CommandOption answer(
    const char* name,
    const char* value,
    const char* help,
    const char* choices = "",
    char letter = '\0') {
  CommandOption option{
      OptionGroup::kOther, name, value, help, nullptr, choices, letter};
  option.from_environment = false;
  option.answers = true;
  return option;
}

Table other_options() {
  return {
      {OptionGroup::kOther,
       "dry-run",
       nullptr,
       "Print what would be run, and run nothing.",
       [](Options& options, const Value&) { options.dry_run = true; }},
      answer(
          "completion",
          "SHELL",
          "Print the script by which a shell "
          "completes ddprun's options.",
          "bash zsh"),
      answer("man", nullptr, "Print the manual page."),
      answer("version", nullptr, "Print the version."),
      answer("help", nullptr, "Print this.", "", 'h'),
  };
}

} // namespace

Table output_and_other_options() {
  return joined(
      {&stream_options,
       &log_file_options,
       &display_options,
       &filter_options,
       &torchrun_options,
       &other_options});
}

} // namespace ddp
