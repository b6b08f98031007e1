#include <launcher/remote/launcher_link.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include <unistd.h>

namespace ddp {

std::string started_mark(const std::string& number) {
  return "\1ddprun begins " + number + "\n";
}

std::string finished_mark(const std::string& number) {
  return "\1ddprun ends " + number + "\n";
}

std::string read_first_line(int fd) {
  std::string line;
  char character = '\0';
  while (read(fd, &character, 1) == 1 && character != '\n') {
    line += character;
  }
  return line;
}

std::vector<int> LauncherLink::take_signals() {
  std::array<char, 256> bytes{};
  const ssize_t size = read(fd_, bytes.data(), bytes.size());
  if (size < 0 && errno == EINTR) {
    return {};
  }
  if (size <= 0) {
    fd_ = -1;
    return {SIGTERM};
  }
  text_.append(bytes.data(), static_cast<size_t>(size));
  std::vector<int> signals;
  for (size_t end; (end = text_.find('\n')) != std::string::npos;) {
    int signal = 0;
    const bool is_known = std::sscanf(text_.c_str(), "signal %d", &signal) == 1;
    if (is_known && signal > 0 && signal < NSIG) {
      signals.push_back(signal);
    }
    text_.erase(0, end + 1);
  }
  return signals;
}

} // namespace ddp
