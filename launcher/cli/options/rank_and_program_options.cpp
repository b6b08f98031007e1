#include <launcher/cli/network_values.h>
#include <launcher/cli/options/option_table.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

using Options = LaunchOptions;
using Value = OptionValue;
using Table = std::vector<CommandOption>;

} // namespace

Table rank_options() {
  Table table = {
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
  return in_group(OptionGroup::kRanks, std::move(table));
}

Table program_options() {
  Table table = {
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
  return in_group(OptionGroup::kProgram, std::move(table));
}

} // namespace ddp
