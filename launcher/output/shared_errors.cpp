#include <launcher/output/shared_errors.h>

#include <algorithm>
#include <cctype>

#include <common/text.h>

namespace ddp {
namespace {

constexpr size_t kMaxTexts = 256;
constexpr std::string_view kStart = "error: ";
constexpr std::string_view kWarning = "] Warning: ddp: ";

// Where a warning's text begins, behind the time and the place; 0: it is none.
size_t warning_in(std::string_view line) {
  const auto place = line.substr(0, 2) == "[W" ? line.find(kWarning) : 0;
  return place == std::string_view::npos ? 0 : place;
}

} // namespace

bool SharedErrors::begins(std::string_view line) {
  if (line.substr(0, kStart.size()) != kStart) {
    return warning_in(line) > 0;
  }
  line.remove_prefix(kStart.size());
  const auto type = line.substr(0, line.find(": "));
  return type.size() < line.size() &&
      type.find("::") != std::string_view::npos &&
      std::all_of(type.begin(), type.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == ':';
         });
}

bool SharedErrors::is_to_be_shown(
    int attempt,
    int rank,
    const std::string& text) {
  const auto key =
      std::make_pair(attempt, without_speaker(text.substr(warning_in(text))));
  const auto found = shown_.find(key);
  if (found != shown_.end()) {
    return found->second == rank;
  }
  if (shown_.size() < kMaxTexts) {
    shown_[key] = rank;
  }
  return true;
}

} // namespace ddp
