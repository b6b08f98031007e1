#include <launcher/worker_environment.h>

#include <algorithm>
#include <map>

namespace ddp {
namespace {

// Dropped unless set below: they describe an outer job.
const char* const kStale[] = {
    "DDP_STORE_FD",
    "DDP_TTY",
    "TORCHELASTIC_ERROR_FILE"};

std::map<std::string, std::string> job_variables(
    const JobEnvironment& job,
    int rank) {
  const std::string rank_text = std::to_string(rank);
  const std::string world_size = std::to_string(job.world_size);
  std::map<std::string, std::string> variables = {
      {"RANK", rank_text},
      {"LOCAL_RANK", rank_text},
      {"WORLD_SIZE", world_size},
      {"LOCAL_WORLD_SIZE", world_size},
      {"GROUP_RANK", "0"},
      {"GROUP_WORLD_SIZE", "1"},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", rank_text},
      {"ROLE_WORLD_SIZE", world_size},
      {"MASTER_ADDR", job.master_addr},
      {"MASTER_PORT", std::to_string(job.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
      {"TORCHELASTIC_RUN_ID", job.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
  if (job.omp_threads > 0) {
    variables["OMP_NUM_THREADS"] = std::to_string(job.omp_threads);
  }
  if (rank == 0 && job.store_fd >= 0) {
    variables["DDP_STORE_FD"] = std::to_string(job.store_fd);
  }
  if (rank == 0 && job.at_terminal) {
    variables["DDP_TTY"] = "1";
  }
  return variables;
}

} // namespace

std::vector<std::string> worker_environment(
    const JobEnvironment& job,
    int rank,
    const char* const* inherited) {
  const auto ours = job_variables(job, rank);
  std::vector<std::string> result;
  for (; *inherited != nullptr; ++inherited) {
    const std::string entry = *inherited;
    const std::string name = entry.substr(0, entry.find('='));
    const bool stale = std::find(std::begin(kStale), std::end(kStale), name) !=
        std::end(kStale);
    if (!stale && ours.count(name) == 0) {
      result.push_back(entry);
    }
  }
  for (const auto& [name, value] : ours) {
    result.push_back(name + "=" + value);
  }
  return result;
}

int omp_threads_per_rank(int ranks, int cpus, const char* omp_setting) {
  return ranks > 1 && omp_setting == nullptr ? std::max(1, cpus / ranks) : 0;
}

} // namespace ddp
