#include <exception>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <common/scheduler/launch_error.h>
#include <common/scheduler/rank_environment.h>
#include <launcher/job.h>
#include <launcher/remote/host_commands.h>
#include <launcher/remote/launcher_link.h>
#include <launcher/report/report.h>

namespace {

// A descriptor that is opened later must not get the number of a standard
// stream.
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

int print(const std::string& text) {
  return ddp::write_all(STDOUT_FILENO, text) == 0 ? 0 : 1;
}

// A job that cannot start also has a report. If the job needs this node, the
// other nodes must be notified, since they would wait for it.
ddp::Job make_job_or_report(const ddp::LaunchOptions& options) {
  try {
    return ddp::make_job(options);
  } catch (const ddp::LaunchError& error) {
    const ddp::NodeOptions& nodes = options.nodes;
    const bool is_needed = nodes.several() && nodes.least == nodes.most;
    const bool lacks_program = error.exit_code() == ddp::kExitNotFound ||
        error.exit_code() == ddp::kExitNotExecutable;
    if (is_needed && lacks_program && !options.dry_run) {
      return ddp::make_failed_job(options, error);
    }
    if (!options.dry_run) {
      ddp::write_error_report(options, error.exit_code(), error.what());
    }
    throw;
  }
}

int launch(const ddp::LaunchOptions& options) {
  if (!options.remote.hosts.empty()) {
    return options.dry_run ? print(ddp::describe_commands(options))
                           : ddp::run_on_hosts(options);
  }
  ddp::Job job = make_job_or_report(options);
  for (const std::string& note : job.notes) {
    say(note);
  }
  return job.options.dry_run ? print(ddp::describe_job(job))
                             : ddp::run_launcher_process(job);
}

int run(int argc, char** argv) {
  try {
    const ddp::LaunchOptions options =
        ddp::parse_options(argc, argv, ddp::process_environment);
    if (!options.answer.empty()) {
      return print(options.answer);
    }
    return launch(options);
  } catch (const ddp::LaunchError& error) {
    say(error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    say(error.what());
    return ddp::kExitInternal;
  }
}

} // namespace

int main(int argc, char** argv) {
  fill_standard_descriptors();
  if (!ddp::process_environment(ddp::kRemoteLauncherVariable)) {
    return run(argc, argv);
  }
  const std::string number = ddp::read_first_line(STDIN_FILENO);
  print(ddp::started_mark(number));
  const int code = run(argc, argv);
  print(ddp::finished_mark(number));
  return code;
}
