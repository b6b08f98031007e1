#include <launcher/cli/options/option_table.h>

#include <limits>

#include <launcher/cli/network_values.h>
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

Table rank_options() {
  return {
      {"nproc-per-node",
       "N",
       "Ranks to start here: a number, cpu (as many as the CPUs that ddprun "
       "may use), gpu (as many as the GPUs that the ranks will see) or auto "
       "(gpu where there are any, else cpu). Default: 1."},
      {"master-addr",
       "HOST",
       "Where rank 0's store listens. Default: 127.0.0.1. With several nodes: "
       "where node 0 is, in place of --rdzv-endpoint.",
       [](Options& options, const Value& value) {
         check_host(value, value.text);
         options.master_addr = value.text;
       }},
      {"master-port",
       "PORT",
       "Its port. Default: a free one; with several nodes 29500.",
       [](Options& options, const Value& value) {
         options.master_port = static_cast<int>(integer_of(value, 0, 65535));
       }},
      {"role",
       "NAME",
       "ROLE_NAME of the ranks. Default: default.",
       &set<text_of, &Options::role>},
      {"standalone",
       nullptr,
       "A job of this machine alone: where ranks meet (--rdzv-*, --node-rank, "
       "--master-*) is chosen here, and an outer launcher (srun, mpirun) is "
       "not heeded.",
       &set<given, &Options::standalone>},
  };
}

Table program_options() {
  return {
      {"no-python",
       nullptr,
       "Run the program as it is, whatever its name. Without this and the two "
       "below, a program that ends in .py is run by Python (PYTHON_EXEC, else "
       "python3), others as they are."},
      {"module",
       nullptr,
       "The program is a Python module, run as by python3 -m.",
       nullptr,
       'm'},
      {"run-path",
       nullptr,
       "The program is a Python script, whatever its name. Wins over the two "
       "above."},
  };
}

Table placement_options() {
  return {
      from_command_line(
          {"env",
           "NAME=VALUE",
           "A variable for the ranks; can be given several times. They inherit "
           "all of ddprun's own anyway.",
           [](Options& options, const Value& value) {
             options.env.push_back(variable_of(value));
           }}),
      {"omp",
       "auto|N|keep",
       "OMP_NUM_THREADS of each rank: auto is an even share of the CPUs where "
       "there are several ranks and the variable is not set; keep leaves it as "
       "it is. Default: auto.",
       &set<omp_threads_of, &Options::omp_threads>},
      {"numa-binding",
       "KIND",
       "CPUs and memory of each rank: none; node (the NUMA node of its GPU); "
       "socket (all nodes of that socket); exclusive (an own share of that "
       "node's cores); core-complex (cores of that node with one last-level "
       "cache); share (an even share of all cores). Default: none.",
       &set<binding_of, &Options::binding>,
       '\0',
       "bind-to"},
      {"devices",
       "LIST",
       "GPUs for the ranks, such as 1,3: their CUDA_VISIBLE_DEVICES. Empty for "
       "none.",
       &set<devices_of, &Options::devices>},
      {"virtual-local-rank",
       nullptr,
       "Each rank sees its own GPU alone, as number 0, and has LOCAL_RANK=0.",
       &set<given, &Options::virtual_local_rank>},
  };
}

Table failure_options() {
  return {
      {"max-restarts",
       "N",
       "How often all ranks are started again after one failed. Default: 0.",
       [](Options& options, const Value& value) {
         options.max_restarts = static_cast<int>(
             integer_of(value, 0, std::numeric_limits<int>::max()));
       }},
      {"grace",
       "SECONDS",
       "From asking a rank to stop (SIGTERM) to killing it. Default: 30.",
       &set<seconds_of, &Options::grace>},
      {"start-timeout",
       "SECONDS",
       "Within this, every rank must have formed its group, which ranks that "
       "do not use ddp never do; 0 for no bound. Default: 0.",
       &set<seconds_of, &Options::start_timeout>},
      {"hang-timeout",
       "SECONDS",
       "Without progress for so long, ranks that use ddp are taken to hang, "
       "and fail; 0 for never. Default: 0.",
       &set<seconds_of, &Options::hang_timeout>},
      {"report",
       "FILE",
       "Where a report of the job is written as JSON.",
       [](Options& options, const Value& value) {
         if (value.text.empty()) {
           refuse_value(value, "a file");
         }
         options.report = value.text;
       }},
  };
}

Table output_options() {
  return {
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
}

Table torchrun_options() {
  return {
      {"monitor-interval",
       "SECONDS",
       "No effect: ddprun looks at no interval, but acts on events.",
       [](Options&, const Value& value) { seconds_of(value); }},
      {"start-method", "NAME", "No effect: for Python functions."},
      {"event-log-handler",
       "NAME",
       "No effect: ddprun records no such events (see --report).",
       [](Options& options, const Value& value) {
         if (!value.text.empty() && value.text != "null") {
           options.notes.push_back(
               value.source + " " + value.text +
               " has no effect: no events are recorded; --report FILE tells "
               "how a job went");
         }
       }},
      {"logs-specs",
       "NAME",
       "No effect: for Python classes.",
       [](Options& options, const Value& value) {
         if (!value.text.empty()) {
           options.notes.push_back(
               value.source + " " + value.text +
               " has no effect: it names a Python class");
         }
       }},
      {"signals-to-handle",
       "LIST",
       "No effect: SIGTERM, SIGINT, SIGHUP and SIGQUIT end the job, and others "
       "are passed on to the ranks.",
       [](Options& options, const Value& value) {
         for (const std::string& name : texts_of(value)) {
           if (name != "SIGTERM" && name != "SIGINT" && name != "SIGHUP" &&
               name != "SIGQUIT") {
             options.notes.push_back(
                 value.source + ": " + name +
                 " is passed on to the ranks without ending the job");
           }
         }
       }},
  };
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

} // namespace

const Table& option_table() {
  static const Table table = [] {
    const std::pair<const char*, Table> groups[] = {
        {"Ranks", rank_options()},
        {"Several nodes", node_options()},
        {"Program", program_options()},
        {"Environment and placement", placement_options()},
        {"Failures and restarts", failure_options()},
        {"Output", output_options()},
        {"Torchrun's, accepted", torchrun_options()},
        {"Other", other_options()}};
    Table all;
    for (const auto& [heading, options] : groups) {
      for (CommandOption option : options) {
        option.group = heading;
        all.push_back(option);
      }
    }
    return all;
  }();
  return table;
}

} // namespace ddp
