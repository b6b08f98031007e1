#include <launcher/cli/nodes.h>

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <common/file_descriptor.h>
#include <common/text.h>
#include <launcher/cli/network_values.h>
#include <launcher/cli/options/option_values.h>
#include <launcher/cli/outer_nodes.h>
#include <launcher/cli/rendezvous_conf.h>
#include <launcher/remote/starter_link.h>

namespace ddp {
namespace {

constexpr int kMostNodes = 16384;

// The file that is read is the one that was checked: another one may be at its
// path by then.
std::string first_line_of(const std::string& name, const std::string& path) {
  if (path == "-") {
    return read_first_line(STDIN_FILENO);
  }
  const FileDescriptor file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) {
    usage_error(name + ": " + std::strerror(errno));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    usage_error(name + ": others can read it; chmod 600 " + path);
  }
  if (status.st_uid != geteuid() && status.st_uid != 0) {
    usage_error(
        name + ": others can read it: it belongs to user " +
        std::to_string(status.st_uid) + "; chown " + std::to_string(geteuid()) +
        " " + path);
  }
  return read_first_line(file.get());
}

// The job's secret: the first line of --token's file, without spaces around it,
// which others than its owner may not read.
std::string token_of(const OptionValue& value) {
  const std::string name = value.source + " " + value.text;
  const std::string line = first_line_of(name, value.text);
  constexpr const char* spaces = " \t\r";
  const size_t first = line.find_first_not_of(spaces);
  if (first == std::string::npos) {
    usage_error(name + ": its first line is empty, expected the job's secret");
  }
  return line.substr(first, line.find_last_not_of(spaces) - first + 1);
}

/// What there is to settle it from.
struct Sources {
  const GivenOptions& given;
  std::optional<OuterNodes> outer;
  RendezvousConf conf;

  // None also where its text is empty.
  const OptionValue* find(const char* name) const {
    const auto found = given.find(name);
    return found == given.end() || found->second.text.empty() ? nullptr
                                                              : &found->second;
  }
};

// "2" or "1:4".
void read_range(const OptionValue& value, NodeOptions* nodes) {
  const auto bound = [&](const std::string& text) {
    return static_cast<int>(integer_of({value.source, text}, 1, kMostNodes));
  };
  const size_t colon = value.text.find(':');
  nodes->least = bound(value.text.substr(0, colon));
  nodes->most = colon == std::string::npos
      ? nodes->least
      : bound(value.text.substr(colon + 1));
  if (nodes->least > nodes->most) {
    refuse_value(value, "MIN:MAX with MIN not above MAX");
  }
}

void count_nodes(const Sources& sources, LaunchOptions* options) {
  const auto given = sources.given.find("nnodes");
  if (given != sources.given.end()) {
    read_range(given->second, &options->nodes);
  } else if (sources.outer && sources.outer->nodes > 0) {
    options->nodes.least = sources.outer->nodes;
    options->nodes.most = sources.outer->nodes;
  } else if (sources.outer) {
    options->notes.push_back(
        sources.outer->launcher +
        " does not say how many pods there are: each is a job of its own "
        "without --nnodes");
  }
}

void settle_rank(const Sources& sources, NodeOptions* nodes) {
  const bool is_fixed = nodes->least == nodes->most;
  const int most = is_fixed ? nodes->most : kMostNodes;
  if (const OptionValue* rank = sources.find("node-rank")) {
    nodes->rank = static_cast<int>(integer_of(*rank, 0, most - 1));
  } else if (sources.outer) {
    nodes->rank = sources.outer->rank;
    if (nodes->rank >= most) {
      usage_error(
          "this is node " + std::to_string(nodes->rank) + " of " +
          sources.outer->launcher + "'s, but the job is to have " +
          std::to_string(nodes->most) + " nodes only: see --nnodes");
    }
  }
}

// An outer launcher's ranks say who serves, and the job may be elastic still.
std::string backend_of(const Sources& sources) {
  const OptionValue* backend = sources.find("rdzv-backend");
  if (backend == nullptr) {
    return sources.find("rdzv-endpoint") ? "c10d"
        : sources.find("master-addr")    ? "static"
                                         : "by the outer launcher";
  }
  if (backend->text != "c10d" && backend->text != "static" &&
      backend->text != "etcd") {
    refuse_value(*backend, "c10d, etcd or static");
  }
  return backend->text;
}

SocketAddress endpoint_by(
    const Sources& sources,
    const LaunchOptions& options,
    const std::string& backend) {
  if (const OptionValue* given = sources.find("rdzv-endpoint")) {
    if (given->text.find(',') != std::string::npos) {
      refuse_value(*given, "one HOST[:PORT], or --rdzv-backend etcd");
    }
    const SocketAddress endpoint = endpoint_of(*given, kRendezvousPort);
    if (endpoint.port == 0) {
      refuse_value(*given, "a port that all nodes know, not 0");
    }
    return endpoint;
  }
  if (const OptionValue* master = sources.find("master-addr")) {
    if (options.nodes.rank < 0 && backend == "static") {
      usage_error(
          master->source + " is node 0, but which node is this? --node-rank N");
    }
    const int port = options.master_port;
    return {options.master_addr, port > 0 ? port : kMasterPort};
  }
  if (!sources.outer || sources.outer->host.empty()) {
    usage_error(
        "where nodes meet is not known: --rdzv-endpoint HOST:PORT" +
        (sources.outer ? ", or MASTER_ADDR=HOST in the environment (" +
                 sources.outer->launcher + " does not name the first node's)"
                       : ""));
  }
  return {sources.outer->host, sources.outer->port};
}

std::vector<SocketAddress> etcd_members(const Sources& sources) {
  const OptionValue* given = sources.find("rdzv-endpoint");
  if (given == nullptr) {
    usage_error(
        "where nodes meet is not known: --rdzv-endpoint HOST[:PORT],..., of "
        "the etcd's members");
  }
  std::vector<SocketAddress> members;
  for (const std::string& each : split_list(given->text)) {
    members.push_back(endpoint_of({given->source, each}, kEtcdPort));
  }
  return members;
}

void settle_endpoint(
    const Sources& sources,
    const std::string& backend,
    LaunchOptions* options) {
  NodeOptions& nodes = options->nodes;
  const bool is_etcd = backend == "etcd";
  if (is_etcd) {
    nodes.etcd = etcd_members(sources);
    nodes.etcd_access = sources.conf.etcd_access;
  }
  const SocketAddress endpoint =
      is_etcd ? nodes.etcd[0] : endpoint_by(sources, *options, backend);
  nodes.host = endpoint.host;
  nodes.port = endpoint.port;
  if (backend == "c10d" && nodes.port == kEtcdPort) {
    options->notes.push_back(
        "port " + std::to_string(kEtcdPort) +
        " is an etcd's, which takes --rdzv-backend etcd");
  }
  if (is_etcd && sources.conf.is_host.value_or(false)) {
    usage_error(
        sources.find("rdzv-conf")->source + " is_host and " +
        sources.find("rdzv-backend")->source +
        " etcd exclude each other: the etcd has the nodes' log");
  }
  if (backend != "c10d" && nodes.rank >= 0) {
    nodes.hosts_log = nodes.rank == 0;
  }
  if (is_etcd || sources.conf.is_host) {
    nodes.hosts_log = !is_etcd && *sources.conf.is_host;
  }
  // These are of one-node jobs.
  options->master_addr = LaunchOptions().master_addr;
  options->master_port = 0;
}

} // namespace

void settle_secret(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    NodeOptions* nodes) {
  const auto file = given.find("token");
  const bool is_file = file != given.end() && !file->second.text.empty();
  const auto variable = lookup("DDP_TOKEN");
  if (!is_file && variable && variable->empty()) {
    usage_error("DDP_TOKEN is empty: unset it, or put the secret there");
  }
  nodes->token = is_file ? token_of(file->second) : variable.value_or("");
}

void settle_nodes(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    LaunchOptions* options) {
  Sources sources{given, std::nullopt, {}};
  std::vector<std::string> unknown;
  if (const OptionValue* conf = sources.find("rdzv-conf")) {
    sources.conf = rendezvous_conf_of(*conf, &unknown);
  }
  if (!options->standalone && !options->has_starter) {
    sources.outer = find_outer_nodes(lookup);
  }
  count_nodes(sources, options);
  if (!options->nodes.several()) {
    if (options->has_starter) {
      settle_secret(given, lookup, &options->nodes); // it is sent in any case
    }
    const OptionValue* rank = sources.find("node-rank");
    if (rank && !options->standalone && whole_number(rank->text) != 0) {
      refuse_value(*rank, "0, as there is one node");
    }
    return;
  }
  if (options->standalone) {
    usage_error(
        given.at("nnodes").source + " and " + given.at("standalone").source +
        " exclude each other: that is a job of one node");
  }
  options->notes.insert(options->notes.end(), unknown.begin(), unknown.end());
  const std::string backend = backend_of(sources);
  if (backend == "static") { // as torchrun's
    options->nodes.least = options->nodes.most;
  }
  settle_rank(sources, &options->nodes);
  settle_endpoint(sources, backend, options);
  if (sources.conf.join_timeout && !sources.find("join-timeout")) {
    options->nodes.join_timeout = *sources.conf.join_timeout;
  }
  if (sources.conf.last_call && !sources.find("last-call")) {
    options->nodes.last_call = *sources.conf.last_call;
  }
  settle_secret(given, lookup, &options->nodes);
  // The same on all nodes, so none that is drawn.
  if (options->run_id.empty() && sources.outer) {
    options->run_id = sources.outer->run_id;
  }
  if (options->run_id.empty()) {
    options->run_id = "none"; // as torchrun's
  }
}

} // namespace ddp
