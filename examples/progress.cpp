#include "progress.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

using Clock = std::chrono::steady_clock;

namespace {

/// ddprun reads the output through a pipe and says by DDP_TTY whether a
/// terminal is behind it.
bool on_terminal() {
  const char* tty = std::getenv("DDP_TTY");
  return (tty && std::string(tty) == "1") || isatty(STDOUT_FILENO);
}

constexpr int64_t kBarWidth = 30;
constexpr auto kRedraw = std::chrono::milliseconds(100);

} // namespace

Progress::Progress(std::string title, int64_t total, bool silent)
    : title_(std::move(title)),
      total_(total),
      silent_(silent),
      terminal_(on_terminal()),
      start_(Clock::now()) {}

void Progress::update(int64_t done, double loss) {
  const auto now = Clock::now();
  const int64_t tenths = 10 * done / total_;
  const bool due =
      terminal_ ? done == total_ || now - drawn_ > kRedraw : tenths > tenths_;
  if (silent_ || !due) {
    return;
  }
  tenths_ = tenths;
  drawn_ = now;
  const std::chrono::duration<double> elapsed = now - start_;
  const double rate = static_cast<double>(done) / elapsed.count();
  std::string bar;
  if (terminal_) {
    const auto filled = kBarWidth * done / total_;
    bar = " [" + std::string(filled, '#') +
        std::string(kBarWidth - filled, '.') + "]";
  }
  const bool last = done == total_;
  std::printf(
      "%s%s %3lld%%  %6.0f images/s  loss %.4f%s",
      title_.c_str(),
      bar.c_str(),
      static_cast<long long>(100 * done / total_),
      rate,
      loss,
      terminal_ && !last ? "\r" : "\n");
  std::fflush(stdout);
}
