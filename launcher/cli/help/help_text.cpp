#include <launcher/cli/help/help_text.h>

#include <sstream>

#include <launcher/cli/options/option_table.h>

namespace ddp {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kIndent = 26;

// Its words in lines of at most this many bytes, where words allow it.
std::vector<std::string> wrap(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    if (lines.empty() || lines.back().size() + 1 + word.size() > width) {
      lines.push_back(word);
    } else {
      lines.back() += " " + word;
    }
  }
  return lines;
}

std::string paragraph(const std::string& text) {
  std::string result;
  for (const std::string& line : wrap(text, kColumns)) {
    result += line + "\n";
  }
  return result;
}

std::string heading_line(const CommandOption& option) {
  std::string line = "  ";
  for (const std::string& form : option.forms) {
    line += (line.size() > 2 ? ", " : "") + form;
  }
  return option.value.empty() ? line : line + " " + option.value;
}

std::string entry(const CommandOption& option) {
  std::string text = heading_line(option);
  bool starts_line = text.size() + 2 > kIndent;
  text += starts_line ? "\n" : std::string(kIndent - text.size(), ' ');
  for (const std::string& line : wrap(option.help, kColumns - kIndent)) {
    text += (starts_line ? std::string(kIndent, ' ') : "") + line + "\n";
    starts_line = true;
  }
  return text;
}

} // namespace

std::string help_text() {
  std::string text =
      "Usage: ddprun [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n\n" +
      paragraph(
          "Runs a program as several ranks on this machine, or on each of "
          "several, and ends them together. Options are torchrun's and a few "
          "more; they end at the program.");
  const CommandOption* previous = nullptr;
  for (const CommandOption& option : option_table()) {
    if (previous == nullptr || previous->group != option.group) {
      text += "\n" + option.group + ":\n";
    }
    text += entry(option);
    previous = &option;
  }
  return text + "\n" +
      paragraph(
             "Underscores stand for dashes, and a beginning that is unique for "
             "the whole name. PET_NPROC_PER_NODE and so on give options that "
             "the command line does not.");
}

} // namespace ddp
