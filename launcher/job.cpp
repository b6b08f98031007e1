#include <launcher/job.h>

#include <algorithm>

#include <unistd.h>

#include <common/host_name.h>
#include <common/processors.h>
#include <common/scheduler/scheduler_environment.h>
#include <common/text.h>
#include <launcher/cli/program.h>
#include <launcher/cli/redaction.h>
#include <launcher/private_folder.h>
#include <launcher/processes.h>
#include <launcher/rendezvous/authentication.h>
#include <launcher/report/report.h>
#include <launcher/sockets.h>

namespace ddp {
namespace {

std::optional<std::string> visible_devices(const LaunchOptions& options) {
  return rank_variable(options, process_environment, "CUDA_VISIBLE_DEVICES");
}

JobEnvironment make_environment(const LaunchOptions& options) {
  JobEnvironment shared;
  shared.local_world_size = options.nproc_per_node;
  shared.nnodes = options.nodes.most;
  shared.node_rank = std::max(0, options.nodes.rank);
  shared.first_rank = shared.node_rank * options.nproc_per_node;
  shared.world_size = options.nodes.most * options.nproc_per_node;
  shared.master_addr = options.master_addr;
  shared.run_id = options.run_id;
  shared.role = options.role;
  shared.host = detail::host_name();
  shared.max_restarts = options.max_restarts;
  shared.at_terminal = isatty(STDOUT_FILENO) == 1;
  shared.virtual_local_rank = options.virtual_local_rank;
  shared.extra = options.env;
  if (options.virtual_local_rank) {
    shared.own_devices = split_list(visible_devices(options).value_or(""));
  }
  return shared;
}

void choose_threads(Job* job) {
  const LaunchOptions& options = job->options;
  const int ranks = options.nproc_per_node;
  int cpus = available_cpus();
  if (!job->places.empty()) {
    cpus = std::min(cpus, usable_cpus(job->places));
  }
  const auto set =
      rank_variable(options, process_environment, "OMP_NUM_THREADS");
  const bool has_quota = ranks == 1 && quota_limits_cpus();
  const int threads = omp_threads_per_rank(
      ranks, cpus, set ? set->c_str() : nullptr, has_quota);
  job->environment.omp_threads = threads;
  if (threads > 0) {
    job->notes.push_back(
        "OMP_NUM_THREADS is not set, so ddprun sets it to " +
        std::to_string(threads) + " for " +
        (ranks == 1 ? "the rank"
                    : "each of " + std::to_string(ranks) + " ranks") +
        " on " + std::to_string(cpus) + (cpus == 1 ? " CPU" : " CPUs"));
  }
}

// Errors, and logs if there are any, go into a separate folder for this run.
void make_folder(Job* job) {
  OutputOptions& output = job->options.output;
  const bool is_chosen = !output.log_dir.empty();
  if (is_chosen ? !writes_files(output) : !wants_files(output)) {
    job->folder = make_private_folder();
    job->private_folder = job->folder;
    if (job->folder.empty()) {
      job->notes.push_back(
          "cannot create a folder in " + temporary_folder() +
          " (TMPDIR): the report will not contain the ranks' errors");
    }
    return;
  }
  job->folder = is_chosen
      ? make_log_folder("--log-dir", output.log_dir, job->environment.run_id)
      : make_log_folder("TMPDIR", temporary_folder(), job->environment.run_id);
  output.log_dir = job->folder;
  if (!is_chosen) {
    job->notes.push_back("logs are in " + job->folder + " (see --log-dir)");
  }
}

void adapt_to_scheduler(Job* job) {
  job->notes = job->options.notes;
  const auto scheduler = detect_scheduler(process_environment);
  if (scheduler && !job->options.standalone &&
      !job->options.has_remote_launcher) {
    const std::string note =
        check_scheduler(*scheduler, job->options.command.front());
    if (!note.empty()) {
      job->notes.push_back(note);
    }
  }
}

} // namespace

Job make_job(LaunchOptions options) {
  Job job;
  job.options = std::move(options);
  if (job.options.run_id.empty()) { // of one node
    job.options.run_id = random_hex(8);
  }
  adapt_to_scheduler(&job);
  Program program = resolve_program(
      job.options.kind, job.options.command, process_environment);
  job.program = std::move(program.file);
  job.options.command = std::move(program.arguments);
  job.environment = make_environment(job.options);
  if (job.options.binding != Binding::kNone) {
    job.places = rank_places(
        job.options.binding,
        job.options.nproc_per_node,
        visible_devices(job.options),
        allowed_cpus());
  }
  choose_threads(&job);
  if (!job.options.dry_run) {
    job.store_program = find_helper("ddprun-store");
    if (!job.options.report.empty()) {
      // Better now than after the job; and no report is better than an older
      // job's.
      prepare_report(job.options.report);
    }
    make_folder(&job);
  }
  return job;
}

Job make_failed_job(LaunchOptions options, const LaunchError& error) {
  Job job;
  job.options = std::move(options);
  job.environment = make_environment(job.options);
  job.store_program = find_helper("ddprun-store");
  job.start_error = error;
  job.notes = {
      std::string(error.what()) +
      "; notifying the other nodes and waiting for them"};
  return job;
}

std::string describe_job(const Job& job) {
  const LaunchOptions& options = job.options;
  const NodeOptions& nodes = options.nodes;
  RankEnvironment own;
  std::string text;
  if (nodes.several()) {
    text =
        "# Ranks, WORLD_SIZE and MASTER_* depend on the nodes that join at " +
        describe_endpoint(nodes.host, nodes.port) + ".\n";
  } else {
    own.master_port = listen_on(options.master_addr, options.master_port).port;
  }
  for (int i = 0; i < options.nproc_per_node; ++i) {
    own.local_rank = i;
    text += describe_rank(
        "rank " + std::to_string(job.environment.first_rank + i) + " of " +
            std::to_string(job.environment.world_size),
        arguments_for(options.command, i),
        rank_variables(job.environment, own),
        job.places.empty() ? nullptr : &job.places[static_cast<size_t>(i)]);
  }
  return text;
}

} // namespace ddp
