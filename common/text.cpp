#include <common/text.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>
#include <string_view>

namespace ddp {
namespace {

// These functions remove a prefix from the text, if it is present.
bool skip(std::string_view* text, std::string_view start) {
  const bool found = text->substr(0, start.size()) == start;
  text->remove_prefix(found ? start.size() : 0);
  return found;
}

bool skip_number(std::string_view* text) {
  const size_t size = text->find_first_not_of("0123456789");
  const bool found = size > 0 && size != std::string_view::npos;
  text->remove_prefix(found ? size : 0);
  return found;
}

bool skip_word_and_colon(std::string_view* text) {
  const size_t size = text->find_first_of(" \n");
  const bool found = size != std::string_view::npos && size > 1 &&
      (*text)[size] == ' ' && (*text)[size - 1] == ':';
  text->remove_prefix(found ? size + 1 : 0);
  return found;
}

std::vector<std::string> split_at(char separator, const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

} // namespace

std::vector<std::string> split_lines(const std::string& text) {
  return split_at('\n', text);
}

std::vector<std::string> split_list(const std::string& text) {
  return split_at(',', text);
}

std::vector<int> parse_number_list(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream stream(text);
  for (int first; stream >> first && first >= 0;) {
    int last = first;
    if (stream.peek() == '-') {
      stream.ignore() >> last;
    }
    for (int number = first; number <= last; ++number) {
      numbers.push_back(number);
    }
    if (stream.peek() == ',') {
      stream.ignore();
    }
  }
  return numbers;
}

std::string number_list(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const size_t first = i;
    while (i + 1 < numbers.size() && numbers[i + 1] == numbers[i] + 1) {
      ++i;
    }
    text += (text.empty() ? "" : ",") + std::to_string(numbers[first]);
    text += i > first ? "-" + std::to_string(numbers[i]) : "";
  }
  return text;
}

std::string name_ranks(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + number_list(ranks);
}

std::string size_text(uint64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; unit + 1 < kUnits.size(); ++unit, size /= 1024) {
    if (size < (unit == 0 ? 1024 : 1023.95)) { // would be "1024.0"
      break;
    }
  }
  std::array<char, 48> text;
  std::snprintf(
      text.data(), text.size(), "%.*f %s", unit > 0, size, kUnits[unit]);
  return text.data();
}

std::string grouped(uint64_t number) {
  auto text = std::to_string(number);
  for (size_t left = 3; left < text.size(); left += 4) {
    text.insert(text.size() - left, ",");
  }
  return text;
}

size_t character_count(const std::string& text) {
  return std::count_if(text.begin(), text.end(), starts_character);
}

std::string describe_time(std::chrono::nanoseconds time) {
  const double seconds = std::chrono::duration<double>(time).count();
  std::array<char, 48> text;
  if (seconds < 0.1) {
    std::snprintf(text.data(), text.size(), "%.0f ms", seconds * 1000);
  } else if (seconds < 120) {
    std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  } else {
    const auto whole = static_cast<long>(seconds);
    std::snprintf(
        text.data(), text.size(), "%ld min %ld s", whole / 60, whole % 60);
  }
  return text.data();
}

std::string without_speaker(const std::string& text) {
  std::string_view rest = text;
  while (skip_word_and_colon(&rest)) { // "error: ", an exception's type
  }
  const size_t start = text.size() - rest.size();
  const bool found = skip(&rest, "rank ") && skip_number(&rest) &&
      skip(&rest, " of ") && skip_number(&rest) && skip(&rest, " on host ") &&
      skip_word_and_colon(&rest);
  return found ? text.substr(0, start).append(rest) : text;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string replaced(
    std::string text,
    const std::string& mention,
    const std::string& by) {
  for (size_t at = 0; (at = text.find(mention, at)) != std::string::npos;) {
    text.replace(at, mention.size(), by);
    at += by.size();
  }
  return text;
}

} // namespace ddp
