#include <launcher/attempt.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <launcher/command_line/program.h>
#include <launcher/output/pseudo_terminal.h>
#include <launcher/store_process.h>
#include <launcher/worker.h>

namespace ddp {
namespace {

// Makes the rank's folder and names its error file.
std::string make_error_file(const std::string& folder) {
  if (folder.empty()) {
    return "";
  }
  const std::string attempt = folder.substr(0, folder.rfind('/'));
  mkdir(attempt.c_str(), S_IRWXU); // there already for the second rank
  mkdir(folder.c_str(), S_IRWXU);
  return folder + "/error.json";
}

} // namespace

Attempt::Attempt(
    const Job& job,
    int number,
    Listener listener,
    const rlimit& ranks_limit,
    OutputPump& output)
    : job_(job),
      number_(number),
      ranks_limit_(ranks_limit),
      output_(output),
      null_(check_call(
          open("/dev/null", O_RDONLY | O_CLOEXEC),
          "cannot open /dev/null")),
      exec_errors_(make_pipe()) {
  for (int i = 0; i < job.options.nproc_per_node; ++i) {
    start_rank(i, listener.port);
  }
  exec_errors_.write_end.reset();
  if (!listener.socket) {
    return; // another node has the store
  }
  // Last: the ranks need not wait for it, since the socket listens already.
  store_ = start_store(
      job.store_program,
      std::move(listener.socket),
      null_.get(),
      STDERR_FILENO);
}

void Attempt::start_rank(int local_rank, int port) {
  Rank rank;
  rank.local_rank = local_rank;
  rank.rank = job_.environment.first_rank + local_rank;
  rank.heartbeat = HeartbeatReader::make();
  rank.error_file = make_error_file(rank_folder(job_, number_, local_rank));
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
  plan.exec_error_fd = exec_errors_.write_end.get();
  plan.descriptor_limit = ranks_limit_;
  plan.null_fd = null_.get();
  if (!job_.places.empty()) {
    plan.place = job_.places.at(static_cast<size_t>(local_rank));
  }
  const FileDescriptor out = output_end(rank, Stream::kOut);
  const FileDescriptor err = output_end(rank, Stream::kErr);
  plan.out_fd = out ? out.get() : STDOUT_FILENO;
  plan.err_fd = err ? err.get() : STDERR_FILENO;
  rank.pid = fork_worker(plan);
  rank.process = open_process(rank.pid);
  ranks_.push_back(std::move(rank));
}

// The rank's end of what carries a stream of its to ddprun; none where it has
// ddprun's own.
FileDescriptor Attempt::output_end(const Rank& rank, Stream stream) {
  const RankStream name{rank.rank, rank.local_rank, stream, number_};
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
