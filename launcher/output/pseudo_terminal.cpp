#include <launcher/output/pseudo_terminal.h>

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace ddp {

PseudoTerminal make_rank_pty() {
  winsize size{};
  for (int fd : {STDIN_FILENO, STDERR_FILENO, STDOUT_FILENO}) {
    winsize own{};
    if (ioctl(fd, TIOCGWINSZ, &own) == 0 && own.ws_col > 0) {
      size = own;
    }
  }
  int master = -1;
  int slave = -1;
  check_call(
      openpty(&master, &slave, nullptr, nullptr, &size),
      "cannot open a pseudo-terminal");
  for (int fd : {master, slave}) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  termios mode{};
  tcgetattr(slave, &mode);
  cfmakeraw(&mode);
  tcsetattr(slave, TCSANOW, &mode);
  return {FileDescriptor(master), FileDescriptor(slave)};
}

} // namespace ddp
