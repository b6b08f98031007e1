#include <launcher/output/shared_errors.h>

#include <algorithm>
#include <array>
#include <cctype>

#include <common/text.h>

namespace ddp {
namespace {

constexpr size_t kMaxTexts = 256;
constexpr size_t kMaxQuoted = 60;
constexpr std::string_view kStart = "error: ";
constexpr std::string_view kWarning = "] Warning: ddp: ";
// Texts of errors that all ranks throw.
constexpr std::array kOfAll{
    " differ between ranks: ",
    " differs between ranks: ",
    " are not the same on all ranks:",
    " is not the same on all ranks:",
    "the ranks made different calls: "};

// The position of kWarning in a warning, after time and place; 0 if the line is
// not a warning.
size_t warning_in(std::string_view line) {
  const auto place = line.substr(0, 2) == "[W" ? line.find(kWarning) : 0;
  return place == std::string_view::npos ? 0 : place;
}

// The line of an uncaught error that ends a process.
bool is_uncaught(std::string_view line) {
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

// The what() of an error that the program caught.
bool is_caught(const std::string& line) {
  return without_speaker(line) != line ||
      std::any_of(kOfAll.begin(), kOfAll.end(), [&](const char* sign) {
           return line.find(sign) != std::string::npos;
         });
}

bool is_error(std::string_view line) {
  return warning_in(line) == 0 &&
      (is_uncaught(line) || is_caught(std::string(line)));
}

} // namespace

bool SharedErrors::begins(std::string_view line) {
  return warning_in(line) > 0 || is_error(line);
}

std::string SharedErrors::last_of(const std::vector<std::string>& lines) {
  std::string text;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    text = *line + (text.empty() ? "" : "\n" + text);
    if (line->substr(0, 2) != kIndent) {
      return is_error(*line) ? text : "";
    }
  }
  return "";
}

bool SharedErrors::is_to_be_shown(
    int attempt,
    int rank,
    const std::string& text) {
  const auto key =
      std::make_pair(attempt, without_speaker(text.substr(warning_in(text))));
  const auto found = ranks_.find(key);
  if (found == ranks_.end()) {
    if (ranks_.size() < kMaxTexts) {
      ranks_[key] = {rank};
    }
    return true;
  }
  auto& ranks = found->second;
  if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
    ranks.push_back(rank);
  }
  return ranks.front() == rank;
}

std::vector<std::string> SharedErrors::repeated_warnings() const {
  std::vector<std::string> lines;
  for (const auto& [key, ranks] : ranks_) {
    const std::string_view text = key.second;
    if (ranks.size() == 1 || text.substr(0, kWarning.size()) != kWarning) {
      continue;
    }
    std::vector<int> others(ranks.begin() + 1, ranks.end());
    std::sort(others.begin(), others.end());
    auto start = std::string(text.substr(kWarning.size(), kMaxQuoted));
    start.resize(std::min(start.find('\n'), start.size()));
    lines.push_back(
        name_ranks(others) + (others.size() == 1 ? " has" : " have") +
        " the same warning as rank " + std::to_string(ranks.front()) + ": " +
        start + "...");
  }
  return lines;
}

} // namespace ddp
