#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include <common/scheduler/launch_error.h>
#include <common/scheduler/slurm_tasks.h>
#include <launcher/cli/options/option_values.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = memfd_create("hosts", 0);
  static const auto path = "/proc/self/fd/" + std::to_string(file);
  const std::string text(reinterpret_cast<const char*>(data), size);
  ddp::slurm_hosts(text, 16);
  ddp::slurm_tasks_on_node(text, 3);
  try {
    ddp::hosts_in_list({"--hosts", text});
  } catch (const ddp::LaunchError&) {
  }
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) < 0) {
    return 0;
  }
  try {
    ddp::hosts_in_file({"--hostfile", path});
  } catch (const ddp::LaunchError&) {
  }
  return 0;
}
