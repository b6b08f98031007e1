#include <launcher/output/pseudo_terminal.h>

#include <cstdlib>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

namespace ddp {
namespace {

constexpr const char* kCannotOpen = "cannot open a pseudo-terminal";

void copy_window_size(int slave) {
  for (int fd : {STDOUT_FILENO, STDERR_FILENO, STDIN_FILENO}) {
    winsize size{};
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      ioctl(slave, TIOCSWINSZ, &size);
      return;
    }
  }
}

} // namespace

PseudoTerminal make_rank_pty() {
  PseudoTerminal pty;
  pty.master = FileDescriptor(
      check_call(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), kCannotOpen));
  check_call(grantpt(pty.master.get()), kCannotOpen);
  check_call(unlockpt(pty.master.get()), kCannotOpen);
  char name[64];
  if (ptsname_r(pty.master.get(), name, sizeof name) != 0) {
    name[0] = '\0';
  }
  pty.slave = FileDescriptor(
      check_call(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC), kCannotOpen));
  termios mode{};
  check_call(tcgetattr(pty.slave.get(), &mode), kCannotOpen);
  cfmakeraw(&mode);
  check_call(tcsetattr(pty.slave.get(), TCSANOW, &mode), kCannotOpen);
  copy_window_size(pty.slave.get());
  return pty;
}

} // namespace ddp
