#include <common/scheduler/rank_environment.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include <common/heartbeat_page.h>
#include <common/scheduler/scheduler_environment.h>

namespace ddp {
namespace {

using Map = std::map<std::string, std::string>;

// Inherited values are dropped: they belong to ddprun or to an outer job.
const char* const kStale[] = {
    kHeartbeatVariable,
    kRemoteLauncherVariable,
    "DDP_TOKEN", // the nodes' secret, which ranks must not see
    "DDP_TTY",
    "TORCHELASTIC_ERROR_FILE"};

void set_ranks(
    const JobEnvironment& job,
    const RankEnvironment& rank,
    Map* variables) {
  const std::string global = std::to_string(job.first_rank + rank.local_rank);
  const std::string world_size = std::to_string(job.world_size);
  const int local = job.virtual_local_rank ? 0 : rank.local_rank;
  *variables = {
      {"RANK", global},
      {"LOCAL_RANK", std::to_string(local)},
      {"WORLD_SIZE", world_size},
      {"LOCAL_WORLD_SIZE", std::to_string(job.local_world_size)},
      {"GROUP_RANK", std::to_string(job.node_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(job.nnodes)},
      {"ROLE_NAME", job.role},
      {"ROLE_RANK", global},
      {"ROLE_WORLD_SIZE", world_size}};
}

void set_attempt(
    const JobEnvironment& job,
    const RankEnvironment& rank,
    Map* variables) {
  const Map added = {
      {"MASTER_ADDR", job.master_addr},
      {"MASTER_PORT", std::to_string(rank.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(job.restarts)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(job.max_restarts)},
      {"TORCHELASTIC_RUN_ID", job.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"}};
  variables->insert(added.begin(), added.end());
  if (!job.epoch.empty()) {
    (*variables)["DDP_EPOCH"] = job.epoch;
  }
  if (!rank.error_file.empty()) {
    (*variables)["TORCHELASTIC_ERROR_FILE"] = rank.error_file;
  }
  if (std::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING") == nullptr) {
    (*variables)["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1";
  }
}

void set_resources(
    const JobEnvironment& job,
    const RankEnvironment& rank,
    Map* variables) {
  if (job.omp_threads > 0) {
    (*variables)["OMP_NUM_THREADS"] = std::to_string(job.omp_threads);
  }
  if (rank.heartbeat_fd >= 0) {
    (*variables)[kHeartbeatVariable] = std::to_string(rank.heartbeat_fd);
  }
  const auto local = static_cast<size_t>(rank.local_rank);
  if (job.virtual_local_rank) {
    (*variables)["CUDA_VISIBLE_DEVICES"] = local < job.own_devices.size()
        ? job.own_devices[local]
        : std::to_string(local);
  }
}

} // namespace

Variables rank_variables(
    const JobEnvironment& job,
    const RankEnvironment& rank) {
  Map variables;
  set_ranks(job, rank, &variables);
  set_attempt(job, rank, &variables);
  if (variables["RANK"] == "0" && job.at_terminal) {
    variables["DDP_TTY"] = "1";
  }
  for (const auto& [name, value] : job.extra) {
    variables[name] = value;
  }
  set_resources(job, rank, &variables);
  return {variables.begin(), variables.end()};
}

std::vector<std::string> worker_environment(
    const Variables& set,
    const char* const* inherited) {
  const Map ours(set.begin(), set.end());
  std::vector<std::string> result;
  for (; *inherited != nullptr; ++inherited) {
    const std::string entry = *inherited;
    const std::string name = entry.substr(0, entry.find('='));
    const bool stale = std::find(std::begin(kStale), std::end(kStale), name) !=
            std::end(kStale) ||
        describes_scheduler_task(name);
    if (!stale && ours.count(name) == 0) {
      result.push_back(entry);
    }
  }
  for (const auto& [name, value] : ours) {
    result.push_back(name + "=" + value);
  }
  return result;
}

int omp_threads_per_rank(
    int ranks,
    int cpus,
    const char* omp_setting,
    bool has_quota) {
  return (ranks > 1 || has_quota) && omp_setting == nullptr
      ? std::max(1, cpus / ranks)
      : 0;
}

} // namespace ddp
