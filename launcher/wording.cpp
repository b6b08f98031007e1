#include <launcher/wording.h>

#include <array>
#include <cstdio>
#include <sstream>

namespace ddp {

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    parts.push_back(part);
  }
  return parts;
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

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

} // namespace ddp
