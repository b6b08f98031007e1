#include <limits>

#include <launcher/cli/options/option_table.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

using Options = LaunchOptions;
using Value = OptionValue;
using Table = std::vector<CommandOption>;

} // namespace

Table placement_options() {
  Table table = {
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
  return in_group(OptionGroup::kPlacement, std::move(table));
}

Table failure_options() {
  Table table = {
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
  return in_group(OptionGroup::kFailures, std::move(table));
}

} // namespace ddp
