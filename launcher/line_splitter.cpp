#include <launcher/line_splitter.h>

namespace ddp {
namespace {

// The largest cut <= limit that does not fall inside a UTF-8 character; bytes
// that are no UTF-8 are cut anywhere.
size_t character_boundary(std::string_view text, size_t limit) {
  const auto continues = [&](size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  for (size_t cut = limit; cut + 4 > limit; --cut) {
    if (!continues(cut)) {
      return cut;
    }
  }
  return limit;
}

} // namespace

void LineSplitter::feed(std::string_view bytes, const Emit& emit) {
  while (!bytes.empty()) {
    const size_t stop = bytes.find_first_of("\r\n");
    line_.append(bytes.substr(0, stop));
    emit_pieces(emit);
    if (stop == std::string_view::npos) {
      return;
    }
    if (bytes[stop] == '\n') {
      end_line(emit);
    } else if (!line_.empty()) {
      progress_.swap(line_);
      line_.clear();
    }
    bytes.remove_prefix(stop + 1);
  }
}

void LineSplitter::finish(const Emit& emit) {
  if (mid_line_ || !line_.empty() || !progress_.empty()) {
    end_line(emit);
  }
}

void LineSplitter::emit_pieces(const Emit& emit) {
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

void LineSplitter::end_line(const Emit& emit) {
  emit(line_.empty() ? progress_ : line_, true); // "\r\n" also ends a line
  line_.clear();
  progress_.clear();
  mid_line_ = false;
}

} // namespace ddp
