#include <cstdlib>
#include <exception>
#include <random>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <launcher/front.h>
#include <launcher/launch_error.h>
#include <launcher/processors.h>
#include <launcher/program_path.h>

namespace {

// A descriptor we open must not land on 0, 1 or 2 and be taken for one of them.
void fill_standard_descriptors() {
  int fd = -1;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  close(fd);
}

void say(const std::string& text) {
  ddp::write_all(STDERR_FILENO, "ddprun: " + text + "\n");
}

std::string random_id() {
  std::random_device random;
  return std::to_string(random()) + std::to_string(random());
}

ddp::Job make_job(ddp::LaunchOptions options) {
  ddp::Job job;
  job.program = ddp::find_program(options.command.front());
  job.listener = ddp::listen_on(options.master_addr, options.master_port);
  const int ranks = options.nproc_per_node;
  const int cpus = ddp::available_cpus();
  job.environment.world_size = ranks;
  job.environment.master_addr = options.master_addr;
  job.environment.master_port = job.listener.port;
  job.environment.run_id = random_id();
  job.environment.store_fd = job.listener.socket.get();
  job.environment.at_terminal = isatty(STDOUT_FILENO) == 1;
  job.environment.omp_threads =
      ddp::omp_threads_per_rank(ranks, cpus, std::getenv("OMP_NUM_THREADS"));
  if (job.environment.omp_threads > 0) {
    say("OMP_NUM_THREADS is not set: " +
        std::to_string(job.environment.omp_threads) + " for each of " +
        std::to_string(ranks) + " ranks on " + std::to_string(cpus) + " CPUs");
  }
  job.options = std::move(options);
  return job;
}

} // namespace

int main(int argc, char** argv) {
  fill_standard_descriptors();
  try {
    ddp::LaunchOptions options = ddp::parse_options(argc, argv);
    if (!options.answer.empty()) {
      return ddp::write_all(STDOUT_FILENO, options.answer) == 0 ? 0 : 1;
    }
    ddp::Job job = make_job(std::move(options));
    return ddp::run_front(job);
  } catch (const ddp::LaunchError& error) {
    say(error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    say(error.what());
    return ddp::kExitInternal;
  }
}
