#include <launcher/output/line_splitter.h>

#include <common/text.h>

namespace ddp {
namespace {

// The largest cut <= limit that is not inside a UTF-8 character; other bytes
// are cut anywhere.
size_t character_boundary(std::string_view text, size_t limit) {
  for (size_t cut = limit; cut + 4 > limit; --cut) {
    if (starts_character(text[cut])) {
      return cut;
    }
  }
  return limit;
}

} // namespace

void LineSplitter::feed(std::string_view bytes, const Emit& emit) {
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    std::string_view line = bytes.substr(0, newline);
    for (size_t stop; (stop = line.find('\r')) != std::string_view::npos;) {
      take(line.substr(0, stop), emit);
      start_over();
      line.remove_prefix(stop + 1);
    }
    const bool whole = newline != std::string_view::npos && line_.empty() &&
        !line.empty() && line.size() <= kMaxPiece;
    if (whole) { // without a copy: nearly every line
      emit(line, true);
      progress_.clear();
      mid_line_ = false;
    } else {
      take(line, emit);
      if (newline == std::string_view::npos) {
        return;
      }
      end_line(emit);
    }
    bytes.remove_prefix(newline + 1);
  }
}

void LineSplitter::finish(const Emit& emit) {
  if (mid_line_ || !unfinished().empty()) {
    end_line(emit);
  }
}

void LineSplitter::take(std::string_view text, const Emit& emit) {
  line_ += text;
  size_t done = 0;
  while (line_.size() - done > kMaxPiece) {
    const std::string_view rest = std::string_view(line_).substr(done);
    const size_t cut = character_boundary(rest, kMaxPiece);
    emit(rest.substr(0, cut), false);
    mid_line_ = true;
    done += cut;
  }
  line_.erase(0, done);
}

void LineSplitter::start_over() {
  if (!line_.empty()) {
    progress_.swap(line_);
    line_.clear();
  }
}

void LineSplitter::end_line(const Emit& emit) {
  emit(unfinished(), true); // "\r\n" also ends a line
  line_.clear();
  progress_.clear();
  mid_line_ = false;
}

} // namespace ddp
