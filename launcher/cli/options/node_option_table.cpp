#include <launcher/cli/network_values.h>
#include <launcher/cli/options/option_table.h>
#include <launcher/cli/options/option_values.h>
#include <launcher/remote/hosts.h>

namespace ddp {
namespace {

using Options = LaunchOptions;
using Value = OptionValue;

} // namespace

std::vector<CommandOption> node_options() {
  return {
      {"nnodes",
       "N|MIN:MAX",
       "Nodes of the job, up to 16384; with MIN:MAX it starts with MIN, and "
       "nodes may come and go. Default: 1, or as many as srun, mpirun or "
       "Kubernetes started ddprun on."},
      {"node-rank",
       "N",
       "Number of this node, from 0. Default: any that is free, or the outer "
       "launcher's."},
      {"rdzv-endpoint",
       "HOST[:PORT]",
       "Where nodes meet: the same on all. The node with this address serves "
       "the rendezvous, and the job ends when it is lost. Default port: 29400. "
       "Of an etcd: HOST[:PORT],HOST[:PORT],..., its members. No effect with "
       "one node."},
      {"rdzv-backend",
       "NAME",
       "Who serves it: c10d (the node that has the address, or is_host of "
       "--rdzv-conf), etcd (3.4 or later, of which any node may be lost; "
       "default port 2379) or static (node 0, and nodes do not come and go). "
       "Default: c10d with --rdzv-endpoint, static with --master-addr. No "
       "effect with one node."},
      {"rdzv-id",
       "NAME",
       "Name of the job: TORCHELASTIC_RUN_ID. Default: one that is drawn; with "
       "several nodes the outer launcher's, else none.",
       &set<text_of, &Options::run_id>},
      {"rdzv-conf",
       "NAME=VALUE,...",
       "is_host (0 or 1: whether this node serves the rendezvous), "
       "join_timeout and last_call_timeout (options of their own below); for "
       "an "
       "etcd, files for TLS (cert, key, cacert) and who comes (user, "
       "password_file); others of torchrun's have no effect, nor have these "
       "with one node."},
      {"bind",
       "ADDRESS|INTERFACE",
       "Where this node listens for others; 0.0.0.0 or :: for everywhere. "
       "Default: the address by which it reaches --rdzv-endpoint.",
       &set<text_of, &Options::nodes, &NodeOptions::bind>},
      {"local-addr",
       "ADDRESS",
       "This node's address for others. Default: the one where it listens.",
       &set<text_of, &Options::nodes, &NodeOptions::local_address>},
      {"port-range",
       "A-B",
       "Ports to listen at. Default: any.",
       [](Options& options, const Value& value) {
         const auto [first, last] = port_range_of(value);
         options.nodes.first_port = first;
         options.nodes.last_port = last;
       }},
      {"token",
       "FILE",
       "A file, readable by you alone, whose first line is the job's secret: "
       "nodes without it cannot take part; - for standard input. Default: the "
       "secret in DDP_TOKEN, if any."},
      {"node-timeout",
       "SECONDS",
       "After this silence a node is lost; at least 1. Default: 10.",
       [](Options& options, const Value& value) {
         options.nodes.node_timeout = seconds_of(value);
         if (options.nodes.node_timeout < std::chrono::seconds(1)) {
           refuse_value(value, "a number of seconds, at least 1");
         }
       }},
      {"last-call",
       "SECONDS",
       "How long MIN nodes wait for more before they start. Default: 3.",
       &set<seconds_of, &Options::nodes, &NodeOptions::last_call>},
      {"join-timeout",
       "SECONDS",
       "How long nodes wait for enough of them. Default: 600.",
       &set<seconds_of, &Options::nodes, &NodeOptions::join_timeout>},
      // The hosts would have them as well from the environment.
      from_command_line(
          {"hosts",
           "HOST[:RANKS],...",
           "Start a ddprun on each of these hosts by a remote shell, with "
           "these options and this program. Default for RANKS: as "
           "--nproc-per-node.",
           &set<hosts_in_list, &Options::remote, &RemoteOptions::hosts>}),
      from_command_line(
          {"hostfile",
           "FILE",
           "The same for the hosts in a file, on a line each: HOST slots=RANKS "
           "(as Open MPI's) or HOST:RANKS.",
           &set<hosts_in_file, &Options::remote, &RemoteOptions::hosts>}),
      {"rsh",
       "COMMAND",
       "The remote shell for --hosts, called as COMMAND HOST LINE. Default: "
       "ssh.",
       [](Options& options, const Value& value) {
         if (value.text.find_first_not_of(' ') == std::string::npos) {
           refuse_value(value, "a command");
         }
         options.remote.shell = value.text;
       }},
  };
}

} // namespace ddp
