#include <launcher/output/screen.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <common/text.h>

namespace ddp {
namespace {

constexpr const char* kEraseLine = "\r\x1b[K";
constexpr const char* kPlainText = "\x1b[0m";
constexpr size_t kUsualColumns = 80;
// Terminals do not always say that they take text again.
constexpr std::chrono::milliseconds kRetryTime(500);

size_t columns_of(int terminal) {
  winsize size{};
  const bool known = ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualColumns;
}

// The end of the escape sequence that starts at `start`: "ESC [ ... letter".
size_t end_of_escape(std::string_view text, size_t start) {
  size_t i = start + 1;
  if (i < text.size() && text[i] == '[') {
    ++i;
    while (i < text.size() && (text[i] < '@' || text[i] > '~')) {
      ++i;
    }
  }
  return i < text.size() ? i + 1 : text.size();
}

// What moves the cursor would leave rests behind.
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

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

} // namespace

std::string_view fit_to_columns(std::string_view text, size_t columns) {
  size_t used = 0;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '\x1b') {
      i = end_of_escape(text, i);
      continue;
    }
    if (starts_character(text[i]) && used++ == columns) {
      return text.substr(0, i);
    }
    ++i;
  }
  return text;
}

Screen::Screen(int out_fd, int err_fd, std::chrono::milliseconds patience)
    : patience_(patience), same_(same_file(out_fd, err_fd)) {
  outputs_[0].fd = out_fd;
  outputs_[1].fd = err_fd;
  for (Output& each : outputs_) {
    each.sink = Sink(each.fd);
    each.terminal = isatty(each.fd) == 1;
    each.drawable = each.terminal && variable("TERM") != "dumb";
    each.colours = each.drawable && variable("NO_COLOR").empty();
  }
}

bool Screen::is_terminal(Stream stream) const {
  return output(stream).drawable;
}

bool Screen::has_colours(Stream stream) const {
  return output(stream).colours;
}

bool Screen::wants_more(Stream stream) const {
  const Output& to = output(stream);
  return to.stalled || to.sink.waiting() < kMaxWaiting;
}

const Screen::Output& Screen::output(Stream stream) const {
  return outputs_[same_ ? 0 : static_cast<size_t>(stream)];
}

Screen::Output& Screen::output(Stream stream) {
  return outputs_[same_ ? 0 : static_cast<size_t>(stream)];
}

Screen::Output* Screen::drawn_output() {
  for (Stream stream : {Stream::kErr, Stream::kOut}) {
    if (is_terminal(stream)) {
      return &output(stream);
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
  Output& to = output(stream);
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
  Output& to = output(Stream::kErr);
  if (to.stalled && to.sink.waiting() > 2 * kMaxWaiting) {
    ++to.dropped;
    return;
  }
  start_text(to);
  to.sink.append(text);
  to.sink.append("\n");
}

// To where a line can start.
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
  progress_ = without_controls(text);
}

void Screen::flush() {
  for (Output& each : outputs_) {
    flush_output(each);
  }
  write(outputs_[0]); // news of the other
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
  const std::string wanted = last_line(to);
  if (wanted != to.drawn && to.open_source < 0) {
    start_text(to);
    to.sink.append(wanted);
    to.drawn = wanted;
  }
}

std::string Screen::last_line(const Output& to) const {
  // One column stays free: a full last column makes some terminals wrap.
  std::string line(fit_to_columns(progress_, columns_of(to.fd) - 1));
  if (line.find('\x1b') != std::string::npos) {
    line += kPlainText;
  }
  return line;
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
          "ddprun: the terminal took no output (Ctrl-S?); lines dropped: " +
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
    other.sink.append(
        std::string("ddprun: cannot write to standard ") +
        (is_out ? "output" : "error") + " (" + std::strerror(error) +
        "); what the ranks write there is dropped\n");
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
