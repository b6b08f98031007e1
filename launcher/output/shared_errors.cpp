#include <launcher/output/shared_errors.h>

#include <algorithm>
#include <cctype>

#include <common/text.h>

namespace ddp {
namespace {

constexpr size_t kMaxTexts = 256;
constexpr std::string_view kStart = "error: ";

} // namespace

bool SharedErrors::begins(std::string_view line) {
  if (line.substr(0, kStart.size()) != kStart) {
    return false;
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
  const auto key = std::make_pair(attempt, without_speaker(text));
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
