#include <tests/support/pitfalls_page.h>

#include <tests/support/launched.h>

namespace ddp::test {

std::string content_of(const std::string& path) {
  std::ifstream file(variable("DDP_SOURCE") + "/" + path);
  REQUIRE(file);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::map<std::string, std::string> messages() {
  std::map<std::string, std::string> all;
  std::istringstream page(content_of("docs/pitfalls.md"));
  const std::string fence = "```text title=";
  std::string title;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind(fence, 0) == 0) {
      title = line.substr(fence.size());
      REQUIRE(all.emplace(title, "").second); // each once
    } else if (line == "```") {
      title.clear();
    } else if (!title.empty()) {
      all[title] += line + "\n";
    }
  }
  return all;
}

std::string one_line(const std::string& text) {
  std::istringstream words(text);
  std::string result;
  for (std::string word; words >> word;) {
    result += (result.empty() ? "" : " ") + word;
  }
  return result;
}

bool fits(const std::string& text, const std::string& pattern) {
  const std::string gap = "...";
  size_t at = 0;
  size_t begin = 0;
  for (;;) {
    const auto end = pattern.find(gap, begin);
    const auto part = pattern.substr(begin, end - begin);
    if (end == std::string::npos) {
      return text.size() >= at + part.size() &&
          text.compare(text.size() - part.size(), part.size(), part) == 0 &&
          (begin > 0 || text.size() == part.size());
    }
    const auto found = text.find(part, at);
    if (found == std::string::npos || (begin == 0 && found != 0)) {
      return false;
    }
    at = found + part.size();
    begin = end + gap.size();
  }
}

} // namespace ddp::test
