#include <ddp/spawn/program_copy.h>

#include <c10/util/Exception.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif

namespace ddp::detail {
namespace {

using Texts = std::vector<std::string>;

/// Where the program was started: noted before `main`, which may go elsewhere.
// NOLINTNEXTLINE(cert-err58-cpp): it does not throw
const std::string start_folder = [] {
  std::error_code error;
  return std::filesystem::current_path(error).string();
}();

/// What the kernel passed to the program, as it is in memory now.
Texts kernel_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  Texts result;
  for (std::string text; std::getline(file, text, '\0');) {
    result.push_back(text);
  }
  return result;
}

std::vector<char*> pointers_to(const Texts& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const auto& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

/// A handler would run in this process, until exec, in place of the new
/// program's.
void take_handlers_away() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN && action.sa_handler != SIG_DFL) {
      action = {};
      action.sa_handler = SIG_DFL;
      sigaction(signal, &action, nullptr);
    }
  }
}

/// Between fork and exec, where other threads may have held any lock:
/// async-signal-safe calls only.
[[noreturn]] void become_copy(
    int descriptor,
    pid_t parent,
    const sigset_t& mask,
    char* const* argv,
    char* const* envp) {
  take_handlers_away();
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) { // died before the line above
    _exit(127);
  }
  if (chdir(start_folder.c_str()) != 0) {
    errno = 0; // it is gone: as well here
  }
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
#ifdef SYS_close_range
  syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
#endif
  fcntl(descriptor, F_SETFD, 0);
  execve("/proc/self/exe", argv, envp);
  const int error = errno;
  _exit(write(descriptor, &error, sizeof(error)) < 0 ? 126 : 127);
}

} // namespace

Texts program_arguments(int argc, char** argv) {
  Texts given(argv, argv + std::max(argc, 0));
  auto original = kernel_arguments();
  auto left = original;
  for (const auto& argument : given) {
    const auto found = std::find(left.begin(), left.end(), argument);
    if (found == left.end()) {
      return given; // the program's own
    }
    left.erase(found);
  }
  return left.empty() ? given : original;
}

pid_t start_copy(const ProgramCopy& copy) {
  const auto argv = pointers_to(copy.arguments);
  const auto envp = pointers_to(copy.environment);
  const pid_t parent = getpid();
  sigset_t all;
  sigset_t mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  const pid_t pid = fork();
  if (pid == 0) {
    become_copy(copy.descriptor, parent, mask, argv.data(), envp.data());
  }
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  TORCH_CHECK(pid > 0, "spawn: cannot fork: ", std::strerror(error));
  return pid;
}

} // namespace ddp::detail
