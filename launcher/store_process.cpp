#include <launcher/store_process.h>

#include <filesystem>
#include <system_error>

#include <unistd.h>

#include <common/processes/worker.h>
#include <common/scheduler/launch_error.h>
#include <common/scheduler/rank_environment.h>

extern char** environ; // NOLINT(readability-redundant-declaration)

namespace ddp {

std::string find_helper(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& each :
       {folder / name, folder / ".." / "libexec" / "ddp" / name}) {
    if (fs::exists(each, error)) {
      return each;
    }
  }
  throw LaunchError(
      kExitInternal,
      name + " is neither in " + folder.string() +
          " nor in ../libexec/ddp: install ddp anew, or keep the two programs "
          "together");
}

std::vector<std::string> helper_environment() {
  return worker_environment({}, environ);
}

pid_t start_store(const std::string& program, FileDescriptor listener) {
  WorkerPlan plan;
  plan.program = program;
  plan.arguments = {"ddprun-store", std::to_string(listener.get())};
  plan.environment = helper_environment();
  plan.out_fd = STDERR_FILENO;
  plan.kept_fds = {listener.get()};
  return fork_worker(plan);
}

} // namespace ddp
