#include <launcher/screen.h>

#include <cstring>

#include <sys/ioctl.h>
#include <unistd.h>

#include <launcher/file_descriptor.h>

namespace ddp {
namespace {

constexpr const char* kEraseLine = "\r\x1b[K";
constexpr const char* kPlainText = "\x1b[0m";
constexpr size_t kUsualColumns = 80;

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

} // namespace

std::string_view fit_to_columns(std::string_view text, size_t columns) {
  size_t used = 0;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '\x1b') {
      i = end_of_escape(text, i);
      continue;
    }
    const bool starts_character =
        (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts_character && used++ == columns) {
      return text.substr(0, i);
    }
    ++i;
  }
  return text;
}

Screen::Screen(int out_fd, int err_fd) {
  sinks_[0].fd = out_fd;
  sinks_[1].fd = err_fd;
  for (Sink& each : sinks_) {
    each.terminal = isatty(each.fd) == 1;
  }
}

bool Screen::is_terminal(Stream stream) const {
  return sinks_[static_cast<size_t>(stream)].terminal;
}

Screen::Sink& Screen::sink(Stream stream) {
  return sinks_[static_cast<size_t>(stream)];
}

void Screen::add(
    Stream stream,
    int source,
    std::string_view prefix,
    std::string_view text,
    bool ends_line) {
  Sink& to = sink(stream);
  if (to.open_source != source) {
    if (to.open_source >= 0) {
      to.pending += '\n';
    }
    to.pending += prefix;
  }
  to.pending += text;
  if (ends_line) {
    to.pending += '\n';
  }
  to.open_source = ends_line ? -1 : source;
}

void Screen::set_progress(Stream stream, std::string_view text) {
  Sink& to = sink(stream);
  if (!to.terminal) {
    return;
  }
  // One column stays free: a full last column makes some terminals wrap.
  const std::string_view shown = fit_to_columns(text, columns_of(to.fd) - 1);
  to.progress = shown;
  if (shown.find('\x1b') != std::string_view::npos) {
    to.progress += kPlainText;
  }
  to.progress_changed = true;
}

const std::string& Screen::visible_progress() const {
  return sinks_[1].progress.empty() ? sinks_[0].progress : sinks_[1].progress;
}

void Screen::flush() {
  for (Sink& each : sinks_) {
    if (!each.pending.empty() || each.progress_changed) {
      flush_sink(each);
    }
  }
}

// Where both streams are terminals they are taken to be the same one.
void Screen::flush_sink(Sink& to) {
  std::string text;
  if (to.terminal && progress_drawn_) {
    text = kEraseLine;
    progress_drawn_ = false;
  }
  text += to.pending;
  if (to.terminal && to.open_source < 0 && !visible_progress().empty()) {
    text += visible_progress();
    progress_drawn_ = true;
  }
  to.pending.clear();
  to.progress_changed = false;
  write(to, text);
}

void Screen::write(Sink& to, std::string_view text) {
  if (to.lost) {
    return;
  }
  const int error = write_all(to.fd, text);
  if (error != 0) {
    to.lost = true;
    const bool is_out = &to == &sinks_[0];
    const std::string news = std::string("ddprun: cannot write to standard ") +
        (is_out ? "output" : "error") + " (" + std::strerror(error) +
        "); what the ranks write there is dropped\n";
    write(sinks_[is_out ? 1 : 0], news);
  }
}

} // namespace ddp
