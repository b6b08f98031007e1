#include <ddp/process_group/agreement/rank_report.h>

#include <ddp/internal/check.h>

#include <sstream>

namespace ddp::detail {

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) {
    text += line + '\n';
  }
  return text;
}

std::string name_ranks(const std::vector<int64_t>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) {
      ++end;
    }
    if (end - i > 2) {
      parts.push_back(c10::str(ranks[i], "-", ranks[end - 1]));
      i = end;
    } else {
      parts.push_back(std::to_string(ranks[i++]));
    }
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < parts.size(); ++i) {
    text += i == 0 ? "" : i + 1 < parts.size() ? ", " : " and ";
    text += parts[i];
  }
  return text;
}

std::string name_by_ranks(const std::vector<std::string>& texts) {
  std::string result;
  for (const auto& [text, of] : group_ranks(texts)) {
    if (!text.empty()) {
      result += (result.empty() ? "" : "; ") + name_ranks(of) + ": " + text;
    }
  }
  return result;
}

void check_same_calls(const std::vector<std::string>& calls) {
  DDP_CHECK_VALUE(
      std::count(calls.begin(), calls.end(), calls.front()) ==
          static_cast<int64_t>(calls.size()),
      "the ranks made different calls: {}",
      name_by_ranks(calls));
}

std::string list_differences(
    const std::string& what,
    const std::vector<std::string>& differences,
    size_t left_out,
    const std::string& remedy) {
  const auto shown = std::min(differences.size(), kMaxDifferences);
  left_out += differences.size() - shown;
  std::ostringstream text;
  text << what;
  for (size_t i = 0; i < shown; ++i) {
    text << "\n  " << differences[i];
  }
  if (left_out > 0) {
    text << "\n  ... and " << left_out << " more";
  }
  if (!remedy.empty()) {
    text << "\n  " << remedy; // indented: ddprun includes it in the text
  }
  return text.str();
}

void throw_differences(
    const std::string& what,
    const std::vector<std::string>& differences,
    size_t left_out,
    const std::string& remedy) {
  DDP_THROW(ValueError, list_differences(what, differences, left_out, remedy));
}

} // namespace ddp::detail
