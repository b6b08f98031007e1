#include <launcher/agent/attempt.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <utility>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <common/processes/worker.h>
#include <launcher/cli/program.h>
#include <launcher/private_folder.h>
#include <launcher/processes.h>

namespace ddp {
namespace {

// Creates the rank's folder in the attempt's, and returns its error file's
// path.
std::string make_error_file(const std::string& attempt, int local_rank) {
  if (attempt.empty()) {
    return "";
  }
  const std::string folder = attempt + "/" + std::to_string(local_rank);
  mkdir(attempt.c_str(), S_IRWXU); // exists already for the second rank
  mkdir(folder.c_str(), S_IRWXU);
  return folder + "/error.json";
}

// Added to the time in which a lost node is noticed.
constexpr std::chrono::milliseconds kReportTime(5000);

// Whether the variable may change for a rank that stays alive.
bool is_by_epoch(const std::string& variable) {
  static const std::set<std::string> names{
      "RANK",
      "WORLD_SIZE",
      "GROUP_RANK",
      "GROUP_WORLD_SIZE",
      "ROLE_RANK",
      "ROLE_WORLD_SIZE",
      "MASTER_ADDR",
      "MASTER_PORT",
      "TORCHELASTIC_RESTART_COUNT",
      "DDP_EPOCH"};
  return names.count(variable) != 0;
}

} // namespace

Attempt::Attempt(
    const Job& job,
    int its_number,
    Listener listener,
    const rlimit& ranks_limit,
    OutputMultiplexer& output,
    const std::function<void(int)>& watch)
    : number(its_number),
      job_(job),
      ranks_limit_(ranks_limit),
      output_(output) {
  Pipe errors = make_pipe();
  exec_errors = std::move(errors.read_end);
  watch(exec_errors.get());
  for (int i = 0; i < job.options.nproc_per_node; ++i) {
    start_rank(i, listener.port, errors.write_end.get());
    if (ranks.back().process) {
      watch(ranks.back().process.get());
    }
  }
  errors.write_end.reset();
  // Last: ranks need not wait for the store, since its socket listens already.
  start_own_store(std::move(listener));
}

void Attempt::start_own_store(Listener listener) {
  if (listener.socket) { // else another node has the store
    store = start_store(job_.store_program, std::move(listener.socket));
  }
}

void Attempt::end_store() {
  const pid_t old = std::exchange(store, -1); // its end is not a failure
  if (old > 0) {
    kill(old, SIGKILL);
    waitpid(old, nullptr, 0);
  }
}

bool Attempt::can_pause() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const Rank& each) {
    return each.heartbeat.can_pause();
  });
}

void Attempt::ask_to_pause(std::chrono::milliseconds step_patience) {
  ++pauses_;
  for (Rank& each : ranks) {
    each.heartbeat.ask_to_pause(pauses_, step_patience);
  }
}

bool Attempt::is_paused() const {
  return std::all_of(ranks.begin(), ranks.end(), [&](const Rank& each) {
    return each.heartbeat.is_paused(pauses_);
  });
}

void Attempt::go_on(Listener listener) {
  end_store();
  for (Rank& each : ranks) {
    each.rank = job_.environment.first_rank + each.local_rank;
    RankEnvironment own;
    own.local_rank = each.local_rank;
    own.master_port = listener.port;
    Variables changed;
    for (auto& variable : rank_variables(job_.environment, own)) {
      if (is_by_epoch(variable.first)) {
        changed.push_back(std::move(variable));
      }
    }
    each.heartbeat.end_pause(pauses_, changed);
  }
  start_own_store(std::move(listener));
}

void Attempt::start_rank(int local_rank, int port, int exec_errors_to) {
  Rank rank;
  rank.local_rank = local_rank;
  rank.rank = job_.environment.first_rank + local_rank;
  rank.heartbeat = HeartbeatReader::make();
  if (job_.options.nodes.several()) {
    rank.heartbeat.allow_pauses(
        2 * job_.options.nodes.node_timeout + kReportTime);
  }
  rank.error_file =
      make_error_file(attempt_folder(job_.folder, number), local_rank);
  RankEnvironment own;
  own.local_rank = local_rank;
  own.master_port = port;
  own.error_file = rank.error_file;
  own.heartbeat_fd = rank.heartbeat.fd();
  WorkerPlan plan;
  plan.program = job_.program;
  plan.arguments = arguments_for(job_.options.command, local_rank);
  plan.environment =
      worker_environment(rank_variables(job_.environment, own), environ);
  if (own.heartbeat_fd >= 0) {
    plan.kept_fds = {own.heartbeat_fd};
  }
  plan.exec_error_fd = exec_errors_to;
  plan.prepare = [&] {
    setrlimit(RLIMIT_NOFILE, &ranks_limit_);
    if (!job_.places.empty()) { // checked when it was chosen
      apply_place(job_.places[static_cast<size_t>(local_rank)]);
    }
  };
  const FileDescriptor out = output_end(rank, Stream::kOut);
  const FileDescriptor err = output_end(rank, Stream::kErr);
  plan.out_fd = out ? out.get() : STDOUT_FILENO;
  plan.err_fd = err ? err.get() : STDERR_FILENO;
  rank.pid = fork_worker(plan);
  rank.process = open_process(rank.pid);
  ranks.push_back(std::move(rank));
}

// The rank's end of the pipe or pseudo-terminal of a stream; none if the rank
// inherits ddprun's stream.
FileDescriptor Attempt::output_end(const Rank& rank, Stream stream) {
  const RankStream name{rank.rank, rank.local_rank, stream, number};
  switch (job_.options.output.mode) {
    case OutputMode::kRaw:
      return FileDescriptor();
    case OutputMode::kPty: {
      PseudoTerminal terminal = make_rank_pty();
      output_.add(std::move(terminal.master), name);
      return std::move(terminal.slave);
    }
    case OutputMode::kLines:
      break;
  }
  Pipe pipe = make_pipe();
  output_.add(std::move(pipe.read_end), name);
  return std::move(pipe.write_end);
}

} // namespace ddp
