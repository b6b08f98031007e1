#include <limits>

#include <launcher/cli/options/option_table.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

using Options = LaunchOptions;
using Value = OptionValue;
using Table = std::vector<CommandOption>;

CommandOption env_option() {
  CommandOption option{
      OptionGroup::kPlacement,
      "env",
      "NAME=VALUE",
      "A variable for the ranks; can be given several times. They inherit all "
      "of ddprun's own anyway.",
      [](Options& options, const Value& value) {
        options.env.push_back(variable_of(value));
      }};
  option.from_environment = false;
  return option;
}

CommandOption binding_option() {
  CommandOption option{
      OptionGroup::kPlacement,
      "numa-binding",
      "KIND",
      "CPUs and memory of each rank: none; node (the NUMA node of its GPU); "
      "socket (all nodes of that socket); exclusive (an own share of that "
      "node's cores); core-complex (cores of that node with one last-level "
      "cache); share (an even share of all cores). Default: none.",
      [](Options& options, const Value& value) {
        options.binding = binding_of(value);
      },
      "none node socket exclusive core-complex share"};
  option.alias = "bind-to";
  return option;
}

Table placement_options() {
  const auto group = OptionGroup::kPlacement;
  return {
      env_option(),
      {group,
       "omp",
       "auto|N|keep",
       "OMP_NUM_THREADS of each rank: auto is an even share of the CPUs where "
       "there are several ranks and the variable is not set; keep leaves it "
       "as it is. Default: auto.",
       [](Options& options, const Value& value) {
         options.omp_threads = omp_threads_of(value);
       },
       "auto keep"},
      binding_option(),
      {group,
       "devices",
       "LIST",
       "GPUs for the ranks, such as 1,3: their CUDA_VISIBLE_DEVICES. Empty "
       "for none.",
       [](Options& options, const Value& value) {
         options.devices = devices_of(value);
       }},
      {group,
       "virtual-local-rank",
       nullptr,
       "Each rank sees its own GPU alone, as number 0, and has LOCAL_RANK=0.",
       [](Options& options, const Value&) {
         options.virtual_local_rank = true;
       }},
  };
}

Table failure_options() {
  const auto group = OptionGroup::kFailures;
  return {
      {group,
       "max-restarts",
       "N",
       "How often all ranks are started again after one failed. Default: 0.",
       [](Options& options, const Value& value) {
         options.max_restarts = static_cast<int>(
             integer_of(value, 0, std::numeric_limits<int>::max()));
       }},
      {group,
       "grace",
       "SECONDS",
       "From asking a rank to stop (SIGTERM) to killing it. Default: 30.",
       [](Options& options, const Value& value) {
         options.grace = seconds_of(value);
       }},
  };
}

Table timeout_options() {
  const auto group = OptionGroup::kFailures;
  return {
      {group,
       "start-timeout",
       "SECONDS",
       "Within this, every rank must have formed its group, which ranks that "
       "do not use ddp never do; 0 for no bound. Default: 0.",
       [](Options& options, const Value& value) {
         options.start_timeout = seconds_of(value);
       }},
      {group,
       "hang-timeout",
       "SECONDS",
       "Without progress for so long, ranks that use ddp are taken to hang, "
       "and fail; 0 for never. Default: 0.",
       [](Options& options, const Value& value) {
         options.hang_timeout = seconds_of(value);
       }},
      {group,
       "report",
       "FILE",
       "Where a report of the job is written as JSON.",
       [](Options& options, const Value& value) {
         if (value.text.empty()) {
           refuse_value(value, "a file");
         }
         options.report = value.text;
       },
       "FILE"},
  };
}

} // namespace

Table placement_and_failure_options() {
  return joined({&placement_options, &failure_options, &timeout_options});
}

} // namespace ddp
