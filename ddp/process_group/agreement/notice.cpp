#include <ddp/process_group/agreement/notice.h>

#include <ddp/process_group/agreement/rank_report.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <utility>

namespace ddp::detail {
namespace {

std::string to_text(const Notice& notice) {
  std::ostringstream text;
  text << std::quoted(notice.call) << std::quoted(notice.mistake)
       << std::quoted(notice.failure) << std::quoted(notice.content);
  return text.str();
}

Notice from_text(const std::string& text) {
  std::istringstream stream(text);
  Notice notice;
  stream >> std::quoted(notice.call) >> std::quoted(notice.mistake) >>
      std::quoted(notice.failure) >> std::quoted(notice.content);
  return notice;
}

/// One member of all notices, by rank.
std::vector<std::string> all(
    std::string Notice::*member,
    const std::vector<Notice>& notices) {
  std::vector<std::string> texts;
  for (const auto& notice : notices) {
    texts.push_back(notice.*member);
  }
  return texts;
}

void check(const std::vector<Notice>& notices) {
  const auto& call = notices[0].call;
  TORCH_CHECK_VALUE(
      std::all_of(
          notices.begin(),
          notices.end(),
          [&](const Notice& notice) { return notice.call == call; }),
      "the ranks did not call the same: ",
      name_by_ranks(all(&Notice::call, notices)));
  const auto mistakes = name_by_ranks(all(&Notice::mistake, notices));
  TORCH_CHECK_VALUE(mistakes.empty(), call, " failed: ", mistakes);
  const auto failures = name_by_ranks(all(&Notice::failure, notices));
  TORCH_CHECK(failures.empty(), call, " failed: ", failures);
}

} // namespace

std::string name_by_ranks(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> ranks;
  for (size_t r = 0; r < texts.size(); ++r) {
    auto found = std::find_if(ranks.begin(), ranks.end(), [&](const auto& of) {
      return of.first == texts[r];
    });
    if (found == ranks.end()) {
      found = ranks.insert(found, {texts[r], {}});
    }
    found->second.push_back(static_cast<int64_t>(r));
  }
  std::string result;
  for (const auto& [text, of] : ranks) {
    if (!text.empty()) {
      result += (result.empty() ? "" : "; ") + name_ranks(of) + ": " + text;
    }
  }
  return result;
}

std::vector<std::string> exchange_notices(
    const Notice& notice,
    const ProcessGroup& group) {
  std::vector<Notice> notices;
  for (const auto& text : group.all_gather(to_text(notice))) {
    notices.push_back(from_text(text));
  }
  check(notices);
  return all(&Notice::content, notices);
}

} // namespace ddp::detail
