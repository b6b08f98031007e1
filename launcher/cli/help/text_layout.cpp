#include <launcher/cli/help/text_layout.h>

#include <sstream>

namespace ddp {

std::vector<std::string> forms_of(const CommandOption& option) {
  std::vector<std::string> forms;
  if (option.letter != '\0') {
    forms.push_back(std::string("-") + option.letter);
  }
  forms.push_back(long_form(option));
  if (option.alias != nullptr) {
    forms.push_back(std::string("--") + option.alias);
  }
  return forms;
}

std::vector<std::string> choices_of(const CommandOption& option) {
  std::istringstream stream(option.choices);
  std::vector<std::string> choices;
  for (std::string choice; stream >> choice;) {
    choices.push_back(choice);
  }
  return choices;
}

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

} // namespace ddp
