#include <launcher/output/screen.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <sys/stat.h>
#include <unistd.h>

namespace ddp {
namespace {

constexpr const char* kEraseLine = "\r\x1b[K";
// The terminal cuts text that is longer than its line.
constexpr const char* kWithoutWrap = "\x1b[?7l";
constexpr const char* kWithWrap = "\x1b[0m\x1b[?7h";
// Terminals do not always report when they accept text again.
constexpr std::chrono::milliseconds kRetryTime(500);

// Characters that move the cursor would leave parts of the line behind.
std::string without_controls(std::string_view text) {
  std::string shown(text);
  std::replace_if(
      shown.begin(),
      shown.end(),
      [](char c) { return c >= 0 && c < ' ' && c != '\x1b'; },
      ' ');
  return shown;
}

bool same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 &&
      first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

} // namespace

Screen::Screen(int out_fd, int err_fd, std::chrono::milliseconds patience)
    : patience_(patience), same_(same_file(out_fd, err_fd)) {
  outputs_[0].fd = out_fd;
  outputs_[1].fd = err_fd;
  for (Output& each : outputs_) {
    each.sink = Sink(each.fd);
    each.terminal = isatty(each.fd) == 1;
    const char* kind = std::getenv("TERM");
    each.drawable =
        each.terminal && (kind == nullptr || std::strcmp(kind, "dumb") != 0);
  }
}

bool Screen::is_terminal(Stream stream) const {
  return outputs_[index_of(stream)].drawable;
}

bool Screen::wants_more(Stream stream) const {
  const Output& to = outputs_[index_of(stream)];
  return to.stalled || to.sink.waiting() < kMaxWaiting;
}

Screen::Output* Screen::drawn_output() {
  for (Stream stream : {Stream::kErr, Stream::kOut}) {
    if (is_terminal(stream)) {
      return &outputs_[index_of(stream)];
    }
  }
  return nullptr;
}

void Screen::add(
    Stream stream,
    int source,
    std::string_view prefix,
    std::string_view text,
    bool ends_line) {
  Output& to = outputs_[index_of(stream)];
  if (to.stalled) {
    to.dropped += ends_line;
    return;
  }
  if (to.open_source != source) {
    start_text(to);
    to.sink.append(prefix);
  }
  to.sink.append(text);
  if (ends_line) {
    to.sink.append("\n");
  }
  to.open_source = ends_line ? -1 : source;
}

void Screen::message(std::string_view text) {
  Output& to = outputs_[index_of(Stream::kErr)];
  if (to.stalled && to.sink.waiting() > 2 * kMaxWaiting) {
    ++to.dropped;
    return;
  }
  start_text(to);
  to.sink.append(text);
  to.sink.append("\n");
}

// Makes the output ready for a new line.
void Screen::start_text(Output& to) {
  if (!to.drawn.empty()) {
    to.sink.append(kEraseLine);
    to.drawn.clear();
  } else if (to.open_source >= 0) {
    to.sink.append("\n");
    to.open_source = -1;
  }
}

void Screen::set_progress(std::string_view text) {
  progress_ =
      text.empty() ? "" : kWithoutWrap + without_controls(text) + kWithWrap;
}

void Screen::flush() {
  for (Output& each : outputs_) {
    flush_output(each);
  }
  for (Output& each : outputs_) {
    write(each); // errors of the other stream
  }
}

void Screen::flush_output(Output& to) {
  if (to.sink.blocked_fd() >= 0) {
    write(to);
    watch_patience(to);
  }
  if (to.sink.blocked_fd() < 0) {
    if (&to == drawn_output()) {
      draw(to);
    }
    write(to);
  }
}

void Screen::draw(Output& to) {
  if (progress_ != to.drawn && to.open_source < 0) {
    start_text(to);
    to.sink.append(progress_);
    to.drawn = progress_;
  }
}

void Screen::watch_patience(Output& to) {
  const auto now = Sink::Clock::now();
  const bool takes_none =
      to.sink.blocked_fd() >= 0 && now - to.sink.last_taken() >= patience_;
  if (to.terminal && !to.stalled && takes_none) {
    to.stalled = true;
    start_text(to);
  } else if (to.stalled && !takes_none) {
    to.stalled = false;
    if (to.dropped > 0) {
      to.sink.append(
          "ddprun: the terminal accepted no output (Ctrl-S?); lines dropped: " +
          std::to_string(to.dropped) + "\n");
      to.dropped = 0;
    }
  }
}

void Screen::write(Output& to) {
  const int error = to.sink.write();
  if (error != 0) {
    const bool is_out = &to == &outputs_[0];
    Output& other = outputs_[is_out ? 1 : 0];
    start_text(other);
    other.sink.append(dropped_output(is_out ? "output" : "error", error));
  }
}

bool Screen::all_written() const {
  return outputs_[0].sink.waiting() == 0 && outputs_[1].sink.waiting() == 0;
}

std::array<int, 2> Screen::blocked_fds() const {
  return {outputs_[0].sink.blocked_fd(), outputs_[1].sink.blocked_fd()};
}

std::chrono::milliseconds Screen::time_left() const {
  const bool waits =
      std::any_of(outputs_.begin(), outputs_.end(), [](const Output& each) {
        return each.terminal && each.sink.blocked_fd() >= 0;
      });
  return waits ? std::min(kRetryTime, patience_)
               : std::chrono::milliseconds(-1);
}

} // namespace ddp
