#include <launcher/cli/options/option.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <common/scheduler/scheduler_environment.h>
#include <common/scheduler/slurm_tasks.h>
#include <common/text.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

/// The data of a scheduler that starts one ddprun on each node.
struct SchedulerNodes {
  std::string launcher; // for messages
  /// 0 if unknown, as in an indexed job of Kubernetes.
  int nodes = 0;
  int rank = 0; // of this node
  /// The host of rank 0; empty if unknown. Open MPI reports mpirun's own host,
  /// which need not have a task.
  std::string host;
  int port = 0;
  /// Equal on all nodes; empty if unknown.
  std::string run_id;
};

int64_t number_of(const EnvironmentLookup& lookup, const char* name) {
  return std::atoll(lookup(name).value_or("").c_str());
}

void rendezvous_by_slurm(
    const EnvironmentLookup& lookup,
    SchedulerNodes* nodes) {
  const std::string job = lookup("SLURM_JOB_ID").value_or("");
  const std::string step = lookup("SLURM_STEP_ID").value_or("");
  const auto hosts = lookup("SLURM_STEP_NODELIST");
  nodes->rank = static_cast<int>(number_of(lookup, "SLURM_NODEID"));
  nodes->host = first_slurm_host(
      hosts ? *hosts : lookup("SLURM_JOB_NODELIST").value_or(""));
  nodes->port = slurm_port(
      number_of(lookup, "SLURM_JOB_ID"), number_of(lookup, "SLURM_STEP_ID"));
  nodes->run_id = job + "." + step;
}

void rendezvous_by_variables(
    const EnvironmentLookup& lookup,
    SchedulerNodes* nodes) {
  nodes->host = lookup("MASTER_ADDR").value_or("");
  const auto port = static_cast<int>(number_of(lookup, "MASTER_PORT"));
  nodes->port = port > 0 && port < 65536 ? port : kMasterPort;
  nodes->run_id = lookup("PMIX_NAMESPACE").value_or("");
}

// None if no scheduler started one ddprun on each node.
std::optional<SchedulerNodes> find_scheduler_nodes(
    const EnvironmentLookup& lookup) {
  const auto launcher = detect_scheduler(lookup);
  const bool starts_nodes = launcher &&
      launcher->kind != SchedulerEnvironment::Kind::kSlurmScript &&
      launcher->tasks != 1 && is_once_per_node(*launcher);
  if (!starts_nodes) {
    return std::nullopt;
  }
  SchedulerNodes nodes;
  nodes.launcher = launcher->name;
  nodes.nodes = launcher->tasks;
  nodes.rank = launcher->rank;
  if (launcher->kind == SchedulerEnvironment::Kind::kSlurm) {
    rendezvous_by_slurm(lookup, &nodes);
  } else {
    rendezvous_by_variables(lookup, &nodes);
  }
  return nodes;
}

// torchrun's names, which have no effect here.
const std::set<std::string> kWithoutEffect{
    "close_timeout",
    "heartbeat_timeout",
    "keep_alive_interval",
    "keep_alive_max_attempt",
    "read_timeout"};

bool flag_of(const OptionValue& value) {
  std::string text = value.text;
  text[0] = text[0] == 'T' ? 't' : text[0] == 'F' ? 'f' : text[0]; // Python's
  if (text != "1" && text != "true" && text != "0" && text != "false") {
    reject_value(value, "1, 0, true or false");
  }
  return text == "1" || text == "true";
}

// Reads --rdzv-conf, "name=value,name=value". A separate option for a value
// takes precedence. Notes unknown names.
void read_conf(
    const OptionValue& value,
    const GivenOptions& given,
    NodeOptions* nodes,
    std::vector<std::string>* notes) {
  EtcdAccess& access = nodes->etcd_access;
  const std::map<std::string, std::string*> texts{
      {"cert", &access.cert},
      {"key", &access.key},
      {"cacert", &access.cacert},
      {"user", &access.user},
      {"password_file", &access.password_file}};
  const auto set_time = [&](const char* option,
                            const OptionValue& time,
                            std::chrono::milliseconds* to) {
    const auto seconds = seconds_of(time);
    *to = find(given, option) ? *to : seconds;
  };
  for (const std::string& pair : texts_of(value)) {
    const size_t sign = pair.find('=');
    if (sign == 0 || sign == std::string::npos || sign + 1 == pair.size()) {
      reject_value(value, "NAME=VALUE,NAME=VALUE,...");
    }
    const std::string name = pair.substr(0, sign);
    const OptionValue each{value.source + " " + name, pair.substr(sign + 1)};
    if (const auto text = texts.find(name); text != texts.end()) {
      *text->second = each.text;
    } else if (name == "is_host") {
      nodes->hosts_log = flag_of(each);
    } else if (name == "join_timeout" || name == "timeout") { // of static
      set_time("join-timeout", each, &nodes->join_timeout);
    } else if (name == "last_call_timeout") {
      set_time("last-call", each, &nodes->last_call);
    } else if (name == "store_type") {
      if (each.text != "tcp") {
        reject_value(each, "tcp");
      }
    } else if (kWithoutEffect.count(name) == 0) {
      notes->push_back(each.source + " has no effect: its key is unknown");
    }
  }
  if (access.cert.empty() != access.key.empty() ||
      access.user.empty() != access.password_file.empty()) {
    reject_value(
        value, "cert=... with key=..., user=... with password_file=...");
  }
}

/// The data from which the backend is chosen.
struct Sources {
  const GivenOptions& given;
  std::optional<SchedulerNodes> scheduler;

  // Null also if its text is empty.
  const OptionValue* find(const char* name) const {
    const OptionValue* value = ddp::find(given, name);
    return value == nullptr || value->text.empty() ? nullptr : value;
  }
};

// "2" or "1:4".
void read_range(const OptionValue& value, NodeOptions* nodes) {
  const auto bound = [&](const std::string& text) {
    return int_of({value.source, text}, 1, kMostNodes);
  };
  const size_t colon = value.text.find(':');
  nodes->least = bound(value.text.substr(0, colon));
  nodes->most = colon == std::string::npos
      ? nodes->least
      : bound(value.text.substr(colon + 1));
  if (nodes->least > nodes->most) {
    reject_value(value, "MIN:MAX with MIN not above MAX");
  }
}

void count_nodes(const Sources& sources, LaunchOptions* options) {
  if (const OptionValue* given = find(sources.given, "nnodes")) {
    read_range(*given, &options->nodes);
  } else if (sources.scheduler && sources.scheduler->nodes > 0) {
    options->nodes.least = sources.scheduler->nodes;
    options->nodes.most = sources.scheduler->nodes;
  } else if (sources.scheduler) {
    options->notes.push_back(
        sources.scheduler->launcher +
        " does not give the number of pods: without --nnodes, each pod is a "
        "separate job");
  }
}

void resolve_rank(const Sources& sources, NodeOptions* nodes) {
  const bool is_fixed = nodes->least == nodes->most;
  const int most = is_fixed ? nodes->most : kMostNodes;
  if (const OptionValue* rank = sources.find("node-rank")) {
    nodes->rank = int_of(*rank, 0, most - 1);
  } else if (sources.scheduler) {
    nodes->rank = sources.scheduler->rank;
    if (nodes->rank >= most) {
      usage_error(
          "this is node " + std::to_string(nodes->rank) + " of " +
          sources.scheduler->launcher + ", but the job has at most " +
          std::to_string(nodes->most) + " nodes: see --nnodes");
    }
  }
}

// A scheduler's ranks determine the serving node; the job may still be elastic.
std::string backend_of(const Sources& sources) {
  const OptionValue* backend = sources.find("rdzv-backend");
  if (backend == nullptr) {
    return sources.find("rdzv-endpoint") ? "c10d"
        : sources.find("master-addr")    ? "static"
                                         : "by the scheduler";
  }
  if (backend->text != "c10d" && backend->text != "static" &&
      backend->text != "etcd") {
    reject_value(*backend, "c10d, etcd or static");
  }
  return backend->text;
}

SocketAddress endpoint_by(
    const Sources& sources,
    const LaunchOptions& options,
    const std::string& backend) {
  if (const OptionValue* given = sources.find("rdzv-endpoint")) {
    if (given->text.find(',') != std::string::npos) {
      reject_value(*given, "one HOST[:PORT], or --rdzv-backend etcd");
    }
    const SocketAddress endpoint = endpoint_of(*given, kRendezvousPort);
    if (endpoint.port == 0) {
      reject_value(*given, "a port other than 0, the same on all nodes");
    }
    return endpoint;
  }
  if (const OptionValue* master = sources.find("master-addr")) {
    if (options.nodes.rank < 0 && backend == "static") {
      usage_error(
          master->source +
          " is node 0, but the number of this node is unknown: use --node-rank "
          "N");
    }
    const int port = options.master_port;
    return {options.master_addr, port > 0 ? port : kMasterPort};
  }
  if (!sources.scheduler || sources.scheduler->host.empty()) {
    usage_error(
        "the rendezvous endpoint is not set: use --rdzv-endpoint HOST:PORT" +
        (sources.scheduler ? ", or MASTER_ADDR=HOST in the environment (" +
                 sources.scheduler->launcher +
                 " does not provide the first node's host)"
                           : ""));
  }
  return {sources.scheduler->host, sources.scheduler->port};
}

std::vector<SocketAddress> etcd_members(const Sources& sources) {
  const OptionValue* given = sources.find("rdzv-endpoint");
  if (given == nullptr) {
    usage_error(
        "the rendezvous endpoint is not set: use --rdzv-endpoint "
        "HOST[:PORT],... with etcd's members");
  }
  std::vector<SocketAddress> members;
  for (const std::string& each : split_list(given->text)) {
    members.push_back(endpoint_of({given->source, each}, kEtcdPort));
  }
  return members;
}

void resolve_endpoint(
    const Sources& sources,
    const std::string& backend,
    LaunchOptions* options) {
  NodeOptions& nodes = options->nodes;
  const bool is_etcd = backend == "etcd";
  if (is_etcd) {
    nodes.etcd = etcd_members(sources);
  }
  const SocketAddress endpoint =
      is_etcd ? nodes.etcd[0] : endpoint_by(sources, *options, backend);
  nodes.host = endpoint.host;
  nodes.port = endpoint.port;
  if (backend == "c10d" && nodes.port == kEtcdPort) {
    options->notes.push_back(
        "port " + std::to_string(kEtcdPort) +
        " is etcd's port, which needs --rdzv-backend etcd");
  }
  if (is_etcd && nodes.hosts_log.value_or(false)) {
    usage_error(
        sources.find("rdzv-conf")->source + " is_host and " +
        sources.find("rdzv-backend")->source +
        " etcd cannot be combined: etcd stores the nodes' log");
  }
  if (is_etcd) {
    nodes.hosts_log = false;
  } else if (backend != "c10d" && nodes.rank >= 0 && !nodes.hosts_log) {
    nodes.hosts_log = nodes.rank == 0;
  }
  // These options belong to one-node jobs.
  options->master_addr = LaunchOptions().master_addr;
  options->master_port = 0;
}

// An operator's variables say where the nodes of any job meet. One node needs
// no such address, and a pod's name does not resolve when the pod starts.
void drop_variables_of_operator(
    const Sources& sources,
    LaunchOptions* options) {
  const auto is_variable = [&](const char* name) {
    const OptionValue* value = sources.find(name);
    return value != nullptr && value->source.rfind("PET_", 0) == 0;
  };
  if (is_variable("master-addr")) {
    options->master_addr = LaunchOptions().master_addr;
  }
  if (is_variable("master-port")) {
    options->master_port = 0;
  }
}

} // namespace

void resolve_secret(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    NodeOptions* nodes) {
  const OptionValue* file = find(given, "token");
  const bool is_file = file != nullptr && !file->text.empty();
  const auto variable = lookup("DDP_TOKEN");
  if (!is_file && variable && variable->empty()) {
    usage_error("DDP_TOKEN is empty: unset it, or set it to the secret");
  }
  nodes->token = is_file ? token_of(*file) : variable.value_or("");
}

void resolve_nodes(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    LaunchOptions* options) {
  Sources sources{given, std::nullopt};
  if (!options->standalone && !options->has_remote_launcher) {
    sources.scheduler = find_scheduler_nodes(lookup);
  }
  count_nodes(sources, options);
  if (!options->nodes.several()) {
    if (options->has_remote_launcher) {
      resolve_secret(given, lookup, &options->nodes); // it is sent in any case
    }
    const OptionValue* rank = sources.find("node-rank");
    if (rank && !options->standalone && whole_number(rank->text) != 0) {
      reject_value(*rank, "0, since the job has one node");
    }
    drop_variables_of_operator(sources, options);
    return;
  }
  if (options->standalone) {
    usage_error(
        given.at("nnodes").source + " and " + given.at("standalone").source +
        " cannot be combined: --standalone starts a job of one node");
  }
  if (const OptionValue* conf = sources.find("rdzv-conf")) {
    read_conf(*conf, given, &options->nodes, &options->notes);
  }
  const std::string backend = backend_of(sources);
  if (backend == "static") { // as torchrun's
    options->nodes.least = options->nodes.most;
  }
  resolve_rank(sources, &options->nodes);
  resolve_endpoint(sources, backend, options);
  resolve_secret(given, lookup, &options->nodes);
  // Equal on all nodes, so not a random id.
  if (options->run_id.empty() && sources.scheduler) {
    options->run_id = sources.scheduler->run_id;
  }
  if (options->run_id.empty()) {
    options->run_id = "none"; // as torchrun's
  }
}

} // namespace ddp
